//! Seeded numbers for tests, and what a hostile or broken program makes of a file.

use serde_json::Value;

/// SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014).
pub struct Seeded(pub u64);

impl Seeded {
    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In (0, 1), with all its bits in use.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 + 1e-20
    }

    /// With this probability.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }
}

/// What JSON and the like are made of, and what does not belong there.
const CHARACTERS: &[u8] = b"0123456789{}[]()\",:-+.eE' \n\0\xff";

/// Changes a few bytes: changed, cut, inserted or copied.
pub fn mutate_bytes(bytes: &mut Vec<u8>, seeded: &mut Seeded) {
    for _ in 0..=seeded.below(4) {
        if bytes.is_empty() {
            bytes.push(b'{');
        }
        let (i, j) = (seeded.below(bytes.len()), seeded.below(bytes.len()));
        let character = CHARACTERS[seeded.below(CHARACTERS.len())];
        match seeded.below(7) {
            0 => bytes[i] = seeded.next() as u8,
            1 => bytes[i] ^= 1 << seeded.below(8),
            2 if seeded.chance(0.3) => bytes.truncate(i),
            2 | 3 => bytes.insert(i, character),
            4 => bytes[i] = character,
            5 => drop(bytes.drain(i.min(j)..i.max(j).min(i.min(j) + 9))),
            _ => bytes.copy_within(i.min(j)..i.max(j), seeded.below(i.min(j) + 1)),
        }
    }
}

/// A value that somebody could write instead of another.
pub fn odd_value(seeded: &mut Seeded) -> Value {
    const TEXTS: [&str; 12] = [
        "",
        "0",
        "-1",
        "NaN",
        "inf",
        "1e308",
        "1e-320",
        "18446744073709551616",
        "{}",
        "[]",
        "null",
        "\u{1F4A3}",
    ];
    match seeded.below(9) {
        0 => Value::Null,
        1 => seeded.chance(0.5).into(),
        2 => seeded.below(14).into(),
        3 => (-(seeded.below(9) as i64)).into(),
        4 => [u64::MAX, 1 << 63, 1 << 53, 1 << 32, 1 << 28, (1 << 28) + 1][seeded.below(6)].into(),
        5 => [0.5, -0.0, 1e308, 5e-324, 1e-9, 1e13][seeded.below(6)].into(),
        6 => TEXTS[seeded.below(TEXTS.len())].into(),
        7 => Value::Array(vec![seeded.below(9).into(); seeded.below(3)]),
        _ => Value::Object(Default::default()),
    }
}

/// Changes one place somewhere in a value: replaced, removed, added, repeated, or exchanged with its neighbour.
pub fn mutate_json(value: &mut Value, seeded: &mut Seeded) {
    let deeper = seeded.chance(0.8);
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let (key, other) = (&keys[seeded.below(keys.len())], &keys[seeded.below(keys.len())]);
            match seeded.below(8) {
                0 => drop(map.remove(key)),
                1 => drop(map.insert("more".into(), odd_value(seeded))),
                2 => {
                    let (a, b) = (map[key].clone(), map[other].clone());
                    map.insert(key.clone(), b);
                    map.insert(other.clone(), a);
                }
                _ => mutate_json(&mut map[key.as_str()], seeded),
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let (i, j) = (seeded.below(list.len()), seeded.below(list.len()));
            match seeded.below(8) {
                0 => drop(list.remove(i)),
                1 => list.insert(i, odd_value(seeded)),
                2 => list.swap(i, j),
                3 => list.push(list[i].clone()),
                _ => mutate_json(&mut list[i], seeded),
            }
        }
        Value::Number(number) if deeper => {
            let x = number.as_f64().unwrap_or(0.0);
            *value = match number.as_u64() {
                Some(whole) if seeded.chance(0.8) => {
                    let near =
                        [whole.wrapping_add(1), whole.wrapping_sub(1), whole / 2, whole.saturating_mul(2)];
                    near[seeded.below(4)].into()
                }
                _ => (x * [0.5, 2.0, -1.0, 1.0 + 1e-9, 0.999][seeded.below(5)]).into(),
            };
        }
        _ => *value = odd_value(seeded),
    }
}
