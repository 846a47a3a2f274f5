//! What was found, as JSON and for people.

use crate::output::{bound, given, short_bound, text_width, wrapped};
use crate::verify::print_about;
use antiphon::accounting::{Bracket, zcdp};
use antiphon::error::Result;
use antiphon::statement::{Accounted, Question};
use antiphon::verify::{Examined, Verified};
use std::path::Path;

/// Figures, and the file that they are about, if there is one.
pub struct Shown {
    accounted: Accounted,
    file: Option<(Examined, Verified)>,
    /// Of the bracket of ε, as it was asked for; infinite with a fixed interval.
    width: f64,
}

impl Shown {
    pub fn new(accounted: Accounted, examined: Option<Examined>, width: f64) -> Result<Shown> {
        let file = examined.map(|examined| examined.verified().map(|verified| (examined, verified)));
        Ok(Shown { accounted, file: file.transpose()?, width })
    }

    fn verified(&self) -> Option<&Verified> {
        self.file.as_ref().map(|(_, verified)| verified)
    }

    /// ρ and μ, and the ε that ρ alone implies where δ was given.
    fn concentrated(&self) -> Result<Option<(f64, f64, Option<f64>)>> {
        let Some(z) = self.accounted.gaussian else {
            return Ok(None);
        };
        let rho = zcdp::rho(z)?;
        let implied = match self.accounted.question {
            Question::Delta { .. } => None,
            _ => Some(zcdp::epsilon(rho, self.accounted.delta.upper)?),
        };
        Ok(Some((rho, zcdp::mu(z)?, implied)))
    }

    /// As a JSON object.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        let mut value = serde_json::json!({
            "noise_multiplier": self.accounted.noise_multiplier,
            "adjacency": self.accounted.adjacency,
            "unit": self.accounted.unit,
            "event": self.accounted.event,
        });
        let Accounted { epsilon, delta, .. } = &self.accounted;
        match self.accounted.question {
            Question::Delta { epsilon } => {
                value["epsilon"] = epsilon.into();
                value["epsilon_upper"] = epsilon.into();
                value["delta_upper"] = delta.upper.into();
                value["delta_lower"] = delta.lower.into();
            }
            Question::Epsilon { delta } | Question::NoiseMultiplier { delta, .. } => {
                value["epsilon_upper"] = epsilon.upper.into();
                value["epsilon_lower"] = epsilon.lower.into();
                value["delta"] = delta.into();
            }
        }
        if let Question::NoiseMultiplier { epsilon, .. } = self.accounted.question {
            value["epsilon"] = epsilon.into();
        }
        if let Some((rho, mu, implied)) = self.concentrated()? {
            value["rho"] = rho.into();
            value["mu"] = mu.into();
            value["epsilon_from_zcdp"] = implied.into();
        }
        if let Some((examined, verified)) = &self.file {
            value["id"] = examined.id.clone().into();
            value["kind"] = examined.kind.into();
            value["schema"] = serde_json::to_value(&examined.schema)?;
            value["workload"] = examined.workload.clone().into();
            value["sensitivity"] = verified.sensitivity().into();
            value["noise_standard_deviation"] = self.accounted.standard_deviation(verified).into();
        }
        value["warnings"] = self.accounted.warning().into_iter().collect::<Vec<_>>().into();
        value["statement"] = self.accounted.statement(self.verified()).sentences().into();
        Ok(value)
    }

    /// For people: the figures, then the statement.
    pub fn print(&self, path: Option<&Path>) -> anyhow::Result<()> {
        let accounted = &self.accounted;
        if let (Some((examined, verified)), Some(path)) = (&self.file, path) {
            print_about(examined, path);
            let sensitivity = bound(verified.sensitivity(), true);
            say!("  sensitivity   {sensitivity} (upper bound, computed again from the file)");
            if let Some(deviation) = accounted.standard_deviation(verified) {
                say!(
                    "  noise         standard deviation {} times the clip norm, for every number in Z",
                    short_bound(deviation, true)
                );
            }
        } else {
            wrapped(&accounted.described_event(), text_width()).iter().for_each(|line| say!("{line}"));
        }
        let found = |bracket: &Bracket| {
            let [upper, lower] = [short_bound(bracket.upper, true), short_bound(bracket.lower, false)];
            format!("{upper}   (upper bound; the lower bound is {lower})")
        };
        if let Some(z) = accounted.printed_multiplier() {
            let found = matches!(self.accounted.question, Question::NoiseMultiplier { .. });
            say!(
                "  multiplier    {z}{}",
                if found { "   (the smallest that is sufficient, rounded up)" } else { "" }
            );
        }
        match self.accounted.question {
            Question::Delta { epsilon } => {
                say!("  epsilon       {}", given(epsilon));
                say!("  delta         {}", found(&accounted.delta));
            }
            Question::Epsilon { delta } | Question::NoiseMultiplier { delta, .. } => {
                say!("  epsilon       {}", found(&accounted.epsilon));
                say!("  delta         {delta:e}");
            }
        }
        let (sampled, epsilon) = (accounted.gaussian.is_none(), accounted.epsilon);
        if sampled && epsilon.upper - epsilon.lower > self.width * epsilon.lower.max(1.0) {
            say!("                The bracket is wider than --width: no finer grid is possible here.");
        }
        if let Some((rho, mu, implied)) = self.concentrated()? {
            let implied = implied.map_or(String::new(), |epsilon| {
                format!("   (ε from ρ alone: {})", short_bound(epsilon, true))
            });
            say!("  zCDP          ρ = {}{implied}", short_bound(rho, true));
            say!("  GDP           μ = {}", short_bound(mu, true));
        }
        say!("");
        say!("Privacy statement");
        for sentence in accounted.statement(self.verified()).sentences() {
            wrapped(&sentence, text_width() - 2).iter().for_each(|line| say!("  {line}"));
        }
        Ok(())
    }
}
