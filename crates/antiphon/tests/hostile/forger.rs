//! Somebody who changes mechanism files on purpose, knows the format, and makes id and checksum fit.

use super::testing::{Seeded, mutate_json, odd_value};
use antiphon::schema::Schema;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const METADATA: &str = "__metadata__";
const NO_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A file taken apart.
#[derive(Clone)]
pub struct Forgery {
    pub header: Value,
    pub data: Vec<u8>,
}

impl Forgery {
    /// Of a file whose header is JSON.
    pub fn of(bytes: &[u8]) -> Option<Forgery> {
        let length = usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok()?;
        let text = bytes.get(8..length.checked_add(8)?)?;
        let header: Value = serde_json::from_slice(text).ok()?;
        header.get(METADATA)?.as_object()?;
        Some(Forgery { header, data: bytes[8 + length..].to_vec() })
    }

    /// The file, with the id and the checksum that are there.
    pub fn bytes(&self) -> Vec<u8> {
        let text = self.header.to_string();
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &self.data].concat()
    }

    /// The file with an id and a checksum that fit, as far as what is there has one.
    pub fn fitting(mut self) -> Vec<u8> {
        if let Some(id) = self.id() {
            self.header[METADATA]["id"] = id.into();
        }
        self.header[METADATA]["checksum"] = NO_CHECKSUM.into();
        let zeroed = self.bytes();
        self.header[METADATA]["checksum"] = hexadecimal(Sha256::new().chain_update(zeroed)).into();
        self.bytes()
    }

    pub fn entry(&self, name: &str) -> Option<&str> {
        self.header[METADATA].get(name)?.as_str()
    }

    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.header[METADATA][name] = value.into();
    }

    fn tensor(&self, name: &str) -> Option<&[u8]> {
        let place = |end: usize| self.header.get(name)?["data_offsets"].get(end)?.as_u64();
        self.data.get(place(0)? as usize..place(1)? as usize)
    }

    /// The id as docs/FORMAT.md defines it.
    fn id(&self) -> Option<String> {
        let mut hash = Sha256::new();
        let kind = self.entry("kind")?;
        if kind == "dense" {
            hash.update(self.tensor("noising_matrix")?);
            return Some(hexadecimal(hash));
        }
        let schema: Schema = serde_json::from_str(self.entry("schema")?).ok()?;
        hash.update(serde_json::to_string(&schema).ok()?);
        let workload: Value = serde_json::from_str(self.entry("workload")?).ok()?;
        hash.update(match workload.get("momentum") {
            Some(momentum) => {
                let momentum: f64 = momentum.as_str()?.parse().ok()?;
                let rates = workload.get("learning_rates")?;
                format!(r#"{{"kind":"training","momentum":"{momentum:?}","learning_rates":{rates}}}"#)
            }
            None => r#"{"kind":"dense"}"#.into(),
        });
        if kind == "structured" {
            let structured: Value = serde_json::from_str(self.entry("structured")?).ok()?;
            let (family, stamps) = (structured.get("family")?, structured.get("stamps")?);
            hash.update(format!(r#"{{"family":{family},"stamps":{stamps}}}"#));
        } else {
            hash.update(self.tensor("certificate")?);
        }
        for name in ["learning_rates", "workload", "nodes", "weights"] {
            hash.update(self.tensor(name).unwrap_or_default());
        }
        if kind == "implicit" {
            hash.update(self.entry("squared_sensitivity")?.parse::<f64>().ok()?.to_le_bytes());
        }
        // Objects of serde_json are sorted by their keys, as the parameters are.
        for name in self.header.as_object()?.keys() {
            if let Some(parameter) = name.strip_prefix("parameter.") {
                hash.update(parameter);
                hash.update(self.tensor(name)?);
            }
        }
        Some(hexadecimal(hash))
    }

    /// Changes one thing; `other` is another file, from which things may be taken.
    pub fn mutate(&mut self, other: &Forgery, seeded: &mut Seeded) {
        match seeded.below(10) {
            0 => self.change_claim(seeded),
            1 | 2 => self.change_entry(other, seeded),
            3 | 4 => self.change_inside(seeded),
            5..=7 => self.change_number(seeded),
            8 => self.change_layout(other, seeded),
            _ => self.change_length(seeded),
        }
    }

    fn change_claim(&mut self, seeded: &mut Seeded) {
        const CLAIMS: [&str; 4] = ["sensitivity", "loss", "lower_bound", "squared_sensitivity"];
        let name = CLAIMS[seeded.below(4)];
        let factor = match seeded.below(3) {
            0 => 1.0 + 10f64.powi(-(seeded.below(12) as i32)),
            1 => 1.0 - 10f64.powi(-(1 + seeded.below(12) as i32)),
            _ => 10f64.powi(seeded.below(9) as i32 - 4),
        };
        if let Some(value) = self.entry(name).and_then(|text| text.parse::<f64>().ok()) {
            self.set(name, format!("{:?}", value * factor));
        }
    }

    /// A whole entry of the metadata: removed, taken from elsewhere, or replaced.
    fn change_entry(&mut self, other: &Forgery, seeded: &mut Seeded) {
        let names =
            |of: &Forgery| of.header[METADATA].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let (own, theirs) = (names(self), names(other));
        let Some(name) = own.get(seeded.below(own.len().max(1))) else { return };
        match seeded.below(6) {
            0 => drop(self.header[METADATA].as_object_mut().unwrap().remove(name)),
            1 => {
                let value = self.header[METADATA][&own[seeded.below(own.len())]].clone();
                self.set(name, value);
            }
            2 | 3 => {
                let name = &theirs[seeded.below(theirs.len().max(1))];
                self.set(name, other.header[METADATA][name].clone());
            }
            4 => {
                let version = ["1", "2", "3"][seeded.below(3)];
                self.set("format_version", version);
            }
            _ => self.set(name, odd_value(seeded)),
        }
    }

    /// A value in the JSON that is in an entry.
    fn change_inside(&mut self, seeded: &mut Seeded) {
        let name = ["schema", "workload", "structured", "bound_schema"][seeded.below(4)];
        let Some(mut value) = self.entry(name).and_then(|text| serde_json::from_str(text).ok()) else {
            return;
        };
        mutate_json(&mut value, seeded);
        self.set(name, value.to_string());
    }

    /// One number of a tensor, or all of them.
    fn change_number(&mut self, seeded: &mut Seeded) {
        let Some(name) = self.any_tensor(seeded) else { return };
        let place = |end: usize| self.header[&name]["data_offsets"][end].as_u64().map(|place| place as usize);
        let (Some(start), Some(end)) = (place(0), place(1)) else { return };
        let Some(numbers) = self.data.get_mut(start..end) else { return };
        let numbers = numbers.as_chunks_mut::<8>().0;
        if numbers.is_empty() {
            return;
        }
        let (i, j) = (seeded.below(numbers.len()), seeded.below(numbers.len()));
        let x = f64::from_le_bytes(numbers[i]);
        let mut put = |x: f64| numbers[i] = x.to_le_bytes();
        match seeded.below(9) {
            0 => put(-x),
            1 => put(0.0),
            2 => put(x * (1.0 + 10f64.powi(-(seeded.below(12) as i32)))),
            3 => put([f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324, -0.0][seeded.below(6)]),
            4 => put(x * 10f64.powi(seeded.below(601) as i32 - 300)),
            5 => put(f64::from_bits(seeded.next())),
            6 => numbers.swap(i, j),
            7 => put(x + seeded.uniform() - 0.5),
            _ => {
                let factor = [0.5, 2.0, -1.0, 0.99, 1e-100, 1e100, 1e-160, 1e160][seeded.below(8)];
                numbers.iter_mut().for_each(|x| *x = (f64::from_le_bytes(*x) * factor).to_le_bytes());
            }
        }
    }

    /// Names, types, shapes and offsets of tensors.
    fn change_layout(&mut self, other: &Forgery, seeded: &mut Seeded) {
        let Some(name) = self.any_tensor(seeded) else { return };
        let Some(second) = self.any_tensor(seeded) else { return };
        let info = self.header[&name].clone();
        let size = self.data.len() + 9;
        match seeded.below(7) {
            0 => {
                self.header[&name] = self.header[&second].clone();
                self.header[&second] = info;
            }
            1 => {
                let names = ["certificate", "weights", "parameter.x", "parameter.noising_matrix", "workload"];
                self.header.as_object_mut().unwrap().remove(&name);
                self.header[names[seeded.below(5)]] = info;
            }
            2 => {
                let offsets = self.header[&name].get_mut("data_offsets");
                if let Some(place) = offsets.and_then(|offsets| offsets.get_mut(seeded.below(2))) {
                    *place = seeded.below(size).into();
                }
            }
            3 => {
                self.header[&name]["shape"] =
                    [json!([0]), json!([]), json!([2, 3]), json!([u64::MAX])][seeded.below(4)].clone()
            }
            4 => self.header[&name]["dtype"] = ["F32", "I64", "F16", "X"][seeded.below(4)].into(),
            5 => mutate_json(&mut self.header[&name], seeded),
            _ => {
                let Some(theirs) = other.any_tensor(seeded) else { return };
                if let Some(bytes) = other.tensor(&theirs).map(<[u8]>::to_vec) {
                    self.add(&theirs, &bytes);
                }
            }
        }
    }

    /// One number more or less, with everything behind it moved.
    fn change_length(&mut self, seeded: &mut Seeded) {
        let Some(name) = self.any_tensor(seeded) else { return };
        let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for name in self.tensors() {
            let Some(bytes) = self.tensor(&name) else { return };
            all.insert(name, bytes.to_vec());
        }
        let Some(numbers) = all.get_mut(&name) else { return };
        match seeded.below(4) {
            0 => numbers.truncate(numbers.len().saturating_sub(8)),
            1 => numbers.extend(1f64.to_le_bytes()),
            2 => numbers.truncate(seeded.below(numbers.len() + 1) / 8 * 8),
            _ => drop(all.remove(&name)),
        }
        self.tensors().iter().for_each(|name| drop(self.header.as_object_mut().unwrap().remove(name)));
        self.data.clear();
        all.iter().for_each(|(name, bytes)| self.add(name, bytes));
    }

    fn add(&mut self, name: &str, bytes: &[u8]) {
        let (start, end) = (self.data.len(), self.data.len() + bytes.len());
        self.header[name] = json!({"dtype": "F64", "shape": [bytes.len() / 8], "data_offsets": [start, end]});
        self.data.extend(bytes);
    }

    fn tensors(&self) -> Vec<String> {
        let all = self.header.as_object().unwrap();
        all.iter()
            .filter(|(name, info)| *name != METADATA && info.is_object())
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn any_tensor(&self, seeded: &mut Seeded) -> Option<String> {
        let all = self.tensors();
        (!all.is_empty()).then(|| all[seeded.below(all.len())].clone())
    }
}

fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
