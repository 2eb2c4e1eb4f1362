//! The command line: `--name value` pairs, each with a default.

use crate::mode::Mode;

/// Shown when the command line is wrong.
pub const USAGE: &str = "use: rrd-gen [--rows 1000000] [--sensors 1000] [--seed 1] [--step 300] \
                         [--mode walk|still|counter|random]";

/// What to generate.
pub struct Arguments {
    pub rows: u64,
    pub sensors: u32,
    pub seed: u64,
    /// Seconds between two readings of a sensor.
    pub step_s: u64,
    pub mode: Mode,
}

impl Arguments {
    /// Reads the words after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { rows: 1_000_000, sensors: 1000, seed: 1, step_s: 300, mode: Mode::Walk };
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
