//! In which order a run goes through the examples. Poisson samples have none: the run draws them itself.

use antiphon::schema::Schema;
use antiphon::{Error, Result};
use serde::{Deserialize, Serialize};

/// The order of the examples. But for the last of these, an epoch has every example once, in batches of the same size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Shuffled once: every epoch has the same batches in the same order.
    #[default]
    Fixed,
    /// Shuffled anew in every epoch.
    Reshuffled,
    /// Shuffled anew in every epoch, but only within windows of steps, so that two participations of an example are never too close.
    MinSeparation {
        /// B: two participations of an example are at least so many steps apart.
        min_separation: usize,
        /// K: an example takes part at most so often.
        max_participations: usize,
    },
    /// Drawn step by step from those who have rested ([`crate::rested`]): for users, of whom nobody knows who will be there.
    Rested {
        /// B: two participations of a user are at least so many steps apart.
        min_separation: usize,
        /// K: a user takes part at most so often.
        max_participations: usize,
    },
}

impl Order {
    /// Minimum separation. Where nothing is said: half of an epoch, and one participation in each.
    pub fn separated(
        min_separation: Option<usize>,
        max_participations: Option<usize>,
        epochs: usize,
        steps_per_epoch: usize,
    ) -> Order {
        Order::MinSeparation {
            min_separation: min_separation.unwrap_or((steps_per_epoch / 2).max(1)),
            max_participations: max_participations.unwrap_or(epochs),
        }
    }

    /// For files and people.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fixed => "fixed",
            Order::Reshuffled => "reshuffled",
            Order::MinSeparation { .. } | Order::Rested { .. } => "min-separation",
        }
    }

    /// Whether all epochs have the same batches.
    pub fn is_fixed(&self) -> bool {
        *self == Order::Fixed
    }

    /// What a mechanism for this order must protect: who may take part when. Refuses what no schedule with full batches can keep.
    pub fn schema(self, epochs: usize, steps_per_epoch: usize) -> Result<Schema> {
        match self {
            Order::Fixed => Schema::epochs(epochs, steps_per_epoch),
            Order::Reshuffled => Schema::reshuffled(epochs, steps_per_epoch),
            Order::MinSeparation { min_separation, max_participations } => {
                let steps = Schema::epochs(epochs, steps_per_epoch)?.steps();
                if !(1..=steps_per_epoch).contains(&min_separation) {
                    let allowed =
                        format!("in 1..={steps_per_epoch}, the steps in which every example takes part once");
                    return Err(Error::argument("min_separation", allowed, min_separation));
                }
                let most = steps.div_ceil(min_separation);
                if !(epochs..=most).contains(&max_participations) {
                    let allowed =
                        format!("in {epochs}..={most}: every example takes part once in every epoch");
                    return Err(Error::argument("max_participations", allowed, max_participations));
                }
                Schema::min_separation(steps, min_separation, max_participations)
            }
            Order::Rested { min_separation, max_participations } => {
                let steps = Schema::epochs(epochs, steps_per_epoch)?.steps();
                Schema::min_separation(steps, min_separation, max_participations)
            }
        }
    }

    /// The steps of a window within which every epoch shuffles anew; none where no epoch does, or where there are no epochs.
    ///
    /// An example stays in its window. In one epoch it comes at the window's last step at the latest, in the next one at its first at the
    /// earliest: that is b − (window − 1) steps later, for b steps per epoch.
    pub(crate) fn window(self, steps_per_epoch: usize) -> Option<usize> {
        match self {
            Order::Fixed | Order::Rested { .. } => None,
            Order::Reshuffled => Some(steps_per_epoch),
            Order::MinSeparation { min_separation, .. } => Some(steps_per_epoch + 1 - min_separation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_its_schema_and_its_name() {
        let separated = |b, k| Order::separated(b, k, 3, 15);
        for (order, schema, text) in [
            (Order::Fixed, Schema::epochs(3, 15), r#""fixed""#),
            (Order::Reshuffled, Schema::reshuffled(3, 15), r#""reshuffled""#),
            (
                separated(None, None),
                Schema::min_separation(45, 7, 3),
                r#"{"min-separation":{"min_separation":7,"max_participations":3}}"#,
            ),
        ] {
            assert_eq!(order.schema(3, 15).unwrap(), schema.unwrap());
            assert_eq!(serde_json::to_string(&order).unwrap(), text);
            assert_eq!(serde_json::from_str::<Order>(text).unwrap(), order);
            assert!(text.contains(order.name()));
        }
        // One step per epoch: nothing to halve.
        let whole = Order::separated(None, None, 3, 1).schema(3, 1).unwrap();
        assert_eq!(whole, Schema::min_separation(3, 1, 3).unwrap());
    }

    #[test]
    fn what_no_schedule_keeps_is_refused() {
        let message = |b, k| Order::separated(b, k, 3, 15).schema(3, 15).unwrap_err().to_string();
        for (b, k, expected) in [
            (Some(0), None, "min_separation must be in 1..=15, the steps"),
            (Some(16), None, "min_separation must be in 1..=15, the steps"),
            (Some(10), Some(2), "max_participations must be in 3..=5: every example"),
            (Some(10), Some(6), "max_participations must be in 3..=5: every example"),
        ] {
            let text = message(b, k);
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
