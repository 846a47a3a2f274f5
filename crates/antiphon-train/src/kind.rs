//! The kinds of noise and their names.

use antiphon::families;
use antiphon::mechanism::{Family, stamp};
use antiphon::{Error, Result};

/// The kinds of noise, as the command line names them: a family of mechanisms, or DP-SGD, which is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A matrix mechanism.
    Family(Family),
    /// DP-SGD: independent noise, Poisson samples, amplification by sampling.
    DpSgd,
    /// What is often called DP-SGD: shuffled batches, accounted for as if they were Poisson samples. Not a valid guarantee.
    ShuffledDpSgd,
}

/// Names of today and those that descriptions of runs had for the same kinds in version 0.1.
const FORMER: [(&str, &str); 2] = [("tree-online", "tree"), ("fft-optimal", "fft-optimal-decoder")];

/// The name of today for a design that may have a former one: `tree, 10 stamps` is `tree-online, 10 stamps`.
pub fn current_name(name: &str) -> String {
    renamed(name, |kind| FORMER.iter().find(|(_, former)| *former == kind).map(|(current, _)| *current))
}

/// The former name of a design, with which ids of runs are made: they seed noise and find results, so they stay as they were.
pub(crate) fn former_name(name: &str) -> String {
    renamed(name, |kind| FORMER.iter().find(|(current, _)| *current == kind).map(|(_, former)| *former))
}

fn renamed(name: &str, other: impl Fn(&str) -> Option<&'static str>) -> String {
    let kind = kind_of(name);
    other(kind).unwrap_or(kind).to_string() + &name[kind.len()..]
}

/// The name of a design without its stamps.
pub(crate) fn kind_of(name: &str) -> &str {
    name.split_once(", ").map_or(name, |(kind, _)| kind)
}

/// Most steps of a run for which the optimum is made where nobody names a kind.
pub const MOST_OPTIMAL_STEPS: usize = 4_000;

impl Kind {
    /// All of them, from the simplest to the best, then those that are sampled.
    pub fn all() -> impl Iterator<Item = Kind> {
        families::candidates().map(Kind::Family).chain([Kind::DpSgd, Kind::ShuffledDpSgd])
    }

    /// What a run of so many steps in fixed order has where nobody names a kind: the optimum, and for long runs the comb, whose noise takes a
    /// few random numbers per step and coordinate instead of half as many as there are steps.
    pub fn usual(steps: usize) -> Kind {
        match steps <= MOST_OPTIMAL_STEPS {
            true => Kind::Family(families::OPTIMAL),
            false => Kind::Family(families::COMB_BLT),
        }
    }

    /// All names, for messages.
    pub fn names() -> String {
        Kind::all().map(Kind::name).collect::<Vec<_>>().join(", ")
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Family(family) => family.name(),
            Kind::DpSgd => "dp-sgd",
            Kind::ShuffledDpSgd => "dp-sgd-shuffled",
        }
    }

    /// The name of a design of this kind with so many stamps.
    pub fn with_stamps(self, stamps: usize) -> String {
        stamp::title(self.name(), stamps)
    }
}

impl std::str::FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Kind> {
        let called = |kind: &Kind| match kind {
            Kind::Family(family) => family.name() == name || family.aliases().contains(&name),
            sampled => sampled.name() == name,
        };
        Kind::all().find(called).ok_or_else(|| {
            Error::argument("mechanism", format!("{}, or a mechanism file that exists", Kind::names()), name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_name_each_and_former_ones_still_work() {
        for (former, name) in
            [("tree", "tree-online"), ("fft-optimal-decoder", "fft-optimal"), ("independent", "identity")]
        {
            assert_eq!(former.parse::<Kind>().unwrap().name(), name);
            assert_eq!(name.parse::<Kind>().unwrap().name(), name);
        }
        assert_eq!(current_name("tree, 10 stamps"), "tree-online, 10 stamps");
        assert_eq!(current_name("fft-optimal-decoder"), "fft-optimal");
        assert_eq!(former_name("fft-optimal, 2 stamps"), "fft-optimal-decoder, 2 stamps");
        for same in ["optimal", "tree-optimal, 5 stamps", "fft", "optimal for 5 epochs", "m.safetensors"] {
            assert_eq!((current_name(same), former_name(same)), (same.into(), same.into()));
        }
        assert_eq!(Kind::usual(4_000), Kind::Family(families::OPTIMAL));
        assert_eq!(Kind::usual(4_001), Kind::Family(families::COMB_BLT));
        for name in Kind::names().split(", ") {
            assert_eq!(name.parse::<Kind>().unwrap().name(), name);
        }
    }
}
