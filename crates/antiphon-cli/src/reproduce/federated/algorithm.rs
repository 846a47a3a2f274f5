//! The algorithms that are compared, and how each is trained.

use antiphon::error::{Error, Result};
use antiphon::families;
use antiphon_train::kind::Kind;
use antiphon_train::settings::Settings;

/// ζ of the paper.
pub const CLIP_NORM: f64 = 1.0;

/// An algorithm: a kind of noise, and how it differs from the protocol.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// What `--mechanisms` takes.
    pub name: &'static str,
    /// What tables show.
    pub title: &'static str,
    /// The noise and the number of stamps; nothing where there is none.
    pub noise: Option<(Kind, Option<usize>)>,
    change: Change,
}

/// How an algorithm differs from the protocol.
#[derive(Clone, Copy)]
enum Change {
    None,
    /// One epoch, with as many rounds: fewer clients in each.
    OneEpoch,
    /// Momentum and cooldown are applied to the output of a mechanism for plain sums.
    PostProcessing,
    /// No cooldown.
    Flat,
}

const OPTIMAL: Kind = Kind::Family(families::OPTIMAL);
const SINGLE_EPOCH: Kind = Kind::Family(families::SINGLE_EPOCH);
const TREE: Kind = Kind::Family(families::TREE_ONLINE);
const COMB: Kind = Kind::Family(families::COMB_BLT);

/// All of them, in the order of the tables.
pub const ALL: [Algorithm; 11] = [
    private("mf6", "MF6,6e", OPTIMAL, None, Change::None),
    private("mf1", "MF1,6e", SINGLE_EPOCH, Some(1), Change::None),
    private("mf1-1e", "MF1,1e", OPTIMAL, None, Change::OneEpoch),
    private("honaker", "Honaker, 1 stamp", TREE, Some(1), Change::None),
    private("honaker-best", "Honaker, best stamps", TREE, None, Change::None),
    private("dp-fedavg", "DP-FedAvg", Kind::DpSgd, None, Change::None),
    private("dp-fedavg-assumed", "DP-FedAvg, assumed Poisson", Kind::ShuffledDpSgd, None, Change::None),
    private("prefix", "MF6,6e prefix + post-processing", OPTIMAL, None, Change::PostProcessing),
    private("comb-blt", "comb-blt", COMB, None, Change::None),
    Algorithm { name: "unnoised", title: "unnoised", noise: None, change: Change::None },
    Algorithm { name: "unnoised-flat", title: "unnoised, no cooldown", noise: None, change: Change::Flat },
];

const fn private(
    name: &'static str,
    title: &'static str,
    kind: Kind,
    stamps: Option<usize>,
    change: Change,
) -> Algorithm {
    Algorithm { name, title, noise: Some((kind, stamps)), change }
}

/// The algorithms of a list, all for an empty one.
pub fn chosen(names: &[String]) -> Result<Vec<Algorithm>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let mut chosen: Vec<Algorithm> = Vec::new();
    for name in names {
        let refuse = |allowed: String| Error::argument("--mechanisms", allowed, name);
        let all = || ALL.map(|algorithm| algorithm.name).join(", ");
        let found = ALL.into_iter().find(|algorithm| algorithm.name == name);
        let found = found.ok_or_else(|| refuse(format!("of {}", all())))?;
        if chosen.iter().any(|other| other.name == found.name) {
            return Err(refuse("each mechanism once".into()));
        }
        chosen.push(found);
    }
    Ok(chosen)
}

impl Algorithm {
    /// How it is trained with so many users: one protocol for all, but for what the algorithm changes.
    pub fn settings(&self, users: usize, epochs: Option<usize>, learning_rate: f64) -> Settings {
        let usual = Settings::federated(users, CLIP_NORM, None);
        let usual = Settings { epochs: epochs.unwrap_or(usual.epochs), learning_rate, ..usual };
        match self.change {
            Change::None => usual,
            Change::OneEpoch => {
                let clients = (usual.batch_size as f64 / usual.epochs.max(1) as f64).round() as usize;
                Settings { epochs: 1, batch_size: clients.max(1), ..usual }
            }
            Change::PostProcessing => Settings { in_workload: false, ..usual },
            Change::Flat => Settings { cooldown: None, ..usual },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Algorithm {
        chosen(&[name.into()]).unwrap()[0]
    }

    #[test]
    fn names_are_known_and_taken_once() {
        assert_eq!(chosen(&[]).unwrap().len(), 11);
        let refused = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            chosen(&names).err().unwrap().to_string()
        };
        assert!(refused(&["optimal"]).contains("mf6, mf1,"), "{}", refused(&["optimal"]));
        assert!(refused(&["mf6", "mf1", "mf6"]).contains("each mechanism once"));
    }

    /// One protocol; one epoch has as many rounds, up to what whole clients allow.
    #[test]
    fn algorithms_differ_from_the_protocol_in_one_thing() {
        let users = 342_477;
        let usual = named("mf6").settings(users, None, 0.5);
        assert_eq!(usual, Settings { learning_rate: 0.5, ..Settings::federated(users, 1.0, None) });
        for name in
            ["mf1", "honaker", "honaker-best", "dp-fedavg", "dp-fedavg-assumed", "comb-blt", "unnoised"]
        {
            assert_eq!(named(name).settings(users, None, 0.5), usual, "{name}");
        }
        let once = named("mf1-1e").settings(users, None, 0.5);
        assert_eq!((usual.steps(users), once.steps(users), once.epochs), (384, 384, 1));
        assert_eq!(once.batch_size, 892);
        let prefix = named("prefix").settings(users, None, 0.5);
        assert_eq!(prefix, Settings { in_workload: false, ..usual });
        let flat = named("unnoised-flat").settings(users, Some(2), 0.25);
        assert_eq!(flat, Settings { cooldown: None, epochs: 2, learning_rate: 0.25, ..usual });
    }
}
