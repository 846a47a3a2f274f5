//! The kinds of noise and their names.

use antiphon::mechanism::Family;
use antiphon::{Error, Result};

/// The kinds of noise, as the command line names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The optimal matrix mechanism for the run.
    Optimal,
    /// A mechanism from a formula.
    Family(Family),
    /// The optimum for a single pass over the data, used for several.
    SingleEpoch,
    /// DP-SGD: independent noise, Poisson samples, amplification by sampling.
    DpSgd,
    /// What is often called DP-SGD: shuffled batches, accounted for as if they were Poisson samples. Not a valid guarantee.
    ShuffledDpSgd,
}

/// Names and what they mean; the first name of a kind is the one that is shown, the others still work.
const KINDS: [(&str, Kind); 12] = [
    ("optimal", Kind::Optimal),
    ("tree-online", Kind::Family(Family::TreeOnline)),
    ("tree", Kind::Family(Family::TreeOnline)),
    ("tree-optimal", Kind::Family(Family::TreeOptimal)),
    ("fft", Kind::Family(Family::Fft)),
    ("fft-optimal", Kind::Family(Family::FftOptimal)),
    ("fft-optimal-decoder", Kind::Family(Family::FftOptimal)),
    ("single-epoch", Kind::SingleEpoch),
    ("identity", Kind::Family(Family::Identity)),
    ("independent", Kind::Family(Family::Identity)),
    ("dp-sgd", Kind::DpSgd),
    ("dp-sgd-shuffled", Kind::ShuffledDpSgd),
];

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

impl Kind {
    /// All names, for messages.
    pub const NAMES: &str = "optimal, tree-online, tree-optimal, fft, fft-optimal, single-epoch, identity, dp-sgd, \
         dp-sgd-shuffled";

    /// The name.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The name of a design of this kind with so many stamps.
    pub fn with_stamps(self, stamps: usize) -> String {
        match stamps {
            1 => self.name().into(),
            stamps => format!("{}, {stamps} stamps", self.name()),
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Kind> {
        KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind).ok_or_else(|| {
            Error::argument("mechanism", format!("{}, or a mechanism file that exists", Kind::NAMES), name)
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
        for name in Kind::NAMES.split(", ") {
            assert_eq!(name.parse::<Kind>().unwrap().name(), name);
        }
    }
}
