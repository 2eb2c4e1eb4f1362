//! What the readings do. Each sensor has five values and a count; keys and times are regular, and
//! so is the count, so that all the entropy of a row is in its five values.
//!
//! | mode | values | bound, bytes a row |
//! |---|---|---|
//! | `walk` | two decimals, a normal step of 0.30 each time | 4.35 |
//! | `still` | two decimals, 19 of 20 readings repeat the one before | 0.31 |
//! | `counter` | whole numbers that grow by 500 on average | 6.5 |
//! | `random` | independent doubles in [0, 1) with 53 random bits | 33.1 |
//!
//! The bound for `walk`: a normal step of sigma = 30.25 hundredths has log2(sigma * sqrt(2 pi e))
//! = 6.966 bits, five of them are 34.83 bits. It leaves out the first reading of each sensor.

use crate::csv::RowBuffer;
use crate::random::Random;
use crate::steps::Steps;

/// Values in a row.
const VALUES: usize = 5;

/// Walks stay in [0, 200), reflected at the ends, as a sensor's range would hold them.
const WALK_END: i64 = 20_000;

/// Bits of a random double of mode `random`.
const MANTISSA_BITS: u32 = 53;

/// See the module's table.
#[derive(Clone, Copy, PartialEq)]
pub enum Mode {
    Walk,
    Still,
    Counter,
    Random,
}

impl Mode {
    const ALL: [(Mode, &'static str); 4] =
        [(Mode::Walk, "walk"), (Mode::Still, "still"), (Mode::Counter, "counter"), (Mode::Random, "random")];

    /// The mode of that name on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|&(mode, _)| mode)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(mode, _)| *mode == self).map_or("", |&(_, name)| name)
    }

    fn steps(self) -> Steps {
        match self {
            Mode::Walk => Steps::normal(30.25),
            Mode::Still => Steps::mostly_zero(0.05, 5.0),
            Mode::Counter | Mode::Random => Steps::exponential(500.0),
        }
    }
}

/// The newest values of all sensors, and where the next ones come from.
pub struct Readings {
    mode: Mode,
    random: Random,
    steps: Steps,
    sensors: Vec<Sensor>,
}

#[derive(Clone)]
struct Sensor {
    values: [i64; VALUES],
    count: u64,
}

impl Readings {
    /// Gives every sensor its own start.
    pub fn new(mode: Mode, sensors: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sensors = (0..sensors)
            .map(|_| Sensor { values: std::array::from_fn(|_| (random.next() % WALK_END as u64) as i64), count: 1 })
            .collect();
        Self { mode, random, steps: mode.steps(), sensors }
    }

    /// Bits that a row costs at least, on average.
    pub fn entropy_bits_a_row(&self) -> f64 {
        let a_value = match self.mode {
            Mode::Random => f64::from(MANTISSA_BITS),
            _ => self.steps.entropy_bits(),
        };
        VALUES as f64 * a_value
    }

    /// Moves one sensor on and writes its values and count, separated by commas.
    pub fn write_next(&mut self, sensor: u32, row: &mut RowBuffer) {
        let sensor = &mut self.sensors[sensor as usize];
        // Four steps from one draw of 64 bits, the fifth from another.
        let bits = [self.random.next(), self.random.next()];
        for (i, value) in sensor.values.iter_mut().enumerate() {
            let step = i64::from(self.steps.pick((bits[i / 4] >> (16 * (i % 4))) as u16));
            match self.mode {
                Mode::Walk | Mode::Still => {
                    *value = reflect(*value + step);
                    row.hundredths(*value);
                }
                Mode::Counter => {
                    *value += step;
                    row.integer(value.unsigned_abs());
                }
                Mode::Random => {
                    let mantissa = self.random.next() >> (u64::BITS - MANTISSA_BITS);
                    row.double(mantissa as f64 / (1u64 << MANTISSA_BITS) as f64);
                }
            }
            row.comma();
        }
        row.integer(sensor.count);
        if self.mode == Mode::Counter {
            sensor.count += 1;
        }
    }
}

fn reflect(value: i64) -> i64 {
    if value < 0 {
        -value
    } else if value >= WALK_END {
        2 * (WALK_END - 1) - value
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walks_bound_is_the_documented_one() {
        let bytes = Readings::new(Mode::Walk, 1, 1).entropy_bits_a_row() / 8.0;
        assert!((bytes - 4.35).abs() < 0.01, "{bytes}");
    }

    #[test]
    fn equal_seeds_give_equal_rows_and_others_do_not() {
        let rows = |seed| {
            let mut readings = Readings::new(Mode::Walk, 3, seed);
            let mut rows = RowBuffer::with_capacity(0);
            (0..9).for_each(|i| readings.write_next(i % 3, &mut rows));
            rows.as_bytes().to_vec()
        };
        assert_eq!(rows(7), rows(7));
        assert_ne!(rows(7), rows(8));
    }

    #[test]
    fn walks_stay_inside_their_range() {
        assert_eq!(reflect(-30), 30);
        assert_eq!(reflect(WALK_END), WALK_END - 2);
        assert_eq!(reflect(17), 17);
    }
}
