//! The command line: `--name value` pairs, each with a default.

use crate::mode::Mode;

/// Shown when the command line is wrong.
pub const USAGE: &str = "use: rrd-gen [--rows 1000000] [--sensors 1000] [--seed 1] [--step 300] \
                         [--mode walk|still|counter|random] [--share 1/1]";

/// What to generate.
pub struct Arguments {
    pub rows: u64,
    pub sensors: u32,
    pub seed: u64,
    /// Seconds between two readings of a sensor.
    pub step_s: u64,
    pub mode: Mode,
    /// Which part of the sensors is written, the rows being those of all; see [`Share`].
    pub share: Share,
}

/// One of so many parts of the sensors: part 1 of 2 has the first, third, fifth and so on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    part: u32,
    of: u32,
}

impl Share {
    const ALL: Share = Share { part: 1, of: 1 };

    fn parse(text: &str) -> Option<Self> {
        let (part, of) = text.split_once('/')?;
        let share = Share { part: part.parse().ok()?, of: of.parse().ok()? };
        (1..=share.of).contains(&share.part).then_some(share)
    }

    /// Whether the sensor, counted from 0, is in it.
    pub fn has(self, sensor: u32) -> bool {
        sensor % self.of == self.part - 1
    }
}

impl Arguments {
    /// Reads the words after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments =
            Self { rows: 1_000_000, sensors: 1000, seed: 1, step_s: 300, mode: Mode::Walk, share: Share::ALL };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--rows" => arguments.rows = number(&name, &value)?,
                "--sensors" => arguments.sensors = number(&name, &value)?,
                "--seed" => arguments.seed = number(&name, &value)?,
                "--step" => arguments.step_s = number(&name, &value)?,
                "--mode" => {
                    arguments.mode = Mode::from_name(&value).ok_or_else(|| format!("there is no mode {value}"))?;
                }
                "--share" => {
                    arguments.share =
                        Share::parse(&value).ok_or_else(|| format!("{name} needs 1/2 or the like, not {value}"))?;
                }
                _ => return Err(format!("there is no option {name}")),
            }
        }
        if arguments.sensors == 0 {
            return Err("--sensors must be at least 1".into());
        }
        Ok(arguments)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} needs a whole number, not {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sensor_is_in_exactly_one_part() {
        let shares: Vec<Share> = (1..=3).filter_map(|part| Share::parse(&format!("{part}/3"))).collect();
        assert_eq!(shares.len(), 3);
        for sensor in 0..10 {
            assert_eq!(shares.iter().filter(|share| share.has(sensor)).count(), 1);
        }
        assert!((0..10).all(|sensor| Share::ALL.has(sensor)));
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        for text in ["0/2", "3/2", "1", "1/0", "/", "a/b"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
    }
}
