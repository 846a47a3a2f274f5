//! What was found, as JSON and for people.

use super::{Accounted, Question};
use crate::output::{bound, given, short_bound, text_width, wrapped};
use crate::verify::Examined;
use antiphon::accounting::{Bracket, zcdp};
use antiphon::error::Result;
use std::path::Path;

impl Accounted {
    /// ρ and μ, and the ε that ρ alone implies where δ was given.
    fn concentrated(&self) -> Result<Option<(f64, f64, Option<f64>)>> {
        let Some(z) = self.gaussian else {
            return Ok(None);
        };
        let rho = zcdp::rho(z)?;
        let implied = match self.question {
            Question::Delta { .. } => None,
            _ => Some(zcdp::epsilon(rho, self.delta.upper)?),
        };
        Ok(Some((rho, zcdp::mu(z)?, implied)))
    }

    /// As a JSON object.
    pub fn json(&self, examined: Option<&Examined>) -> anyhow::Result<serde_json::Value> {
        let mut value = serde_json::json!({
            "noise_multiplier": self.noise_multiplier,
            "adjacency": self.adjacency,
            "unit": self.unit,
            "event": self.event,
        });
        let Accounted { epsilon, delta, .. } = self;
        match self.question {
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
        if let Question::NoiseMultiplier { epsilon, .. } = self.question {
            value["epsilon"] = epsilon.into();
        }
        if let Some((rho, mu, implied)) = self.concentrated()? {
            value["rho"] = rho.into();
            value["mu"] = mu.into();
            value["epsilon_from_zcdp"] = implied.into();
        }
        if let Some(examined) = examined {
            value["id"] = examined.id.clone().into();
            value["kind"] = examined.kind.into();
            value["schema"] = serde_json::to_value(&examined.schema)?;
            value["workload"] = examined.workload.clone().into();
            value["sensitivity"] = examined.report.sensitivity.upper.into();
            value["noise_standard_deviation"] = self.standard_deviation(examined).into();
        }
        value["warnings"] = self.warning().into_iter().collect::<Vec<_>>().into();
        value["statement"] = self.statement(examined).into();
        Ok(value)
    }

    /// Of every number in Z, in units of the clip norm.
    pub fn standard_deviation(&self, examined: &Examined) -> Option<f64> {
        self.noise_multiplier.map(|z| (z * examined.report.sensitivity.upper).next_up()) // up
    }

    /// The noise multiplier as it was given, or rounded up.
    pub fn printed_multiplier(&self) -> Option<String> {
        self.noise_multiplier.map(|z| match self.question {
            Question::NoiseMultiplier { .. } => short_bound(z, true),
            _ => z.to_string(),
        })
    }

    /// For people: the figures, then the statement.
    pub fn print(&self, examined: Option<(&Examined, &Path)>) -> anyhow::Result<()> {
        if let Some((examined, path)) = examined {
            examined.print_about(path);
            let sensitivity = bound(examined.report.sensitivity.upper, true);
            say!("  sensitivity   {sensitivity} (upper bound, computed again from the file)");
            if let Some(deviation) = self.standard_deviation(examined) {
                say!(
                    "  noise         standard deviation {} times the clip norm, for every number in Z",
                    short_bound(deviation, true)
                );
            }
        } else {
            wrapped(&self.described_event(), text_width()).iter().for_each(|line| say!("{line}"));
        }
        let found = |bracket: &Bracket| {
            let [upper, lower] = [short_bound(bracket.upper, true), short_bound(bracket.lower, false)];
            format!("{upper}   (upper bound; the lower bound is {lower})")
        };
        if let Some(z) = self.printed_multiplier() {
            let found = matches!(self.question, Question::NoiseMultiplier { .. });
            say!(
                "  multiplier    {z}{}",
                if found { "   (the smallest that is sufficient, rounded up)" } else { "" }
            );
        }
        match self.question {
            Question::Delta { epsilon } => {
                say!("  epsilon       {}", given(epsilon));
                say!("  delta         {}", found(&self.delta));
            }
            Question::Epsilon { delta } | Question::NoiseMultiplier { delta, .. } => {
                say!("  epsilon       {}", found(&self.epsilon));
                say!("  delta         {delta:e}");
            }
        }
        let sampled = self.gaussian.is_none();
        if sampled && self.epsilon.upper - self.epsilon.lower > self.width * self.epsilon.lower.max(1.0) {
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
        for sentence in self.statement(examined.map(|(examined, _)| examined)) {
            wrapped(&sentence, text_width() - 2).iter().for_each(|line| say!("  {line}"));
        }
        Ok(())
    }
}
