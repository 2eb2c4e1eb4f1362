//! `rrd-gen`: sensor readings as CSV on standard output, the same for the same arguments.
//!
//! Rows come in time order, all sensors of a step together, for the table `sensordata`:
//! ts, sensor_id, data1, data2, data3, data4, data6, cnt. What the values do is the mode's choice
//! (see [`mode`]). As every step is drawn from a known distribution, the Shannon entropy of a row
//! is known too: no lossless store can use fewer bytes. It goes to standard error as JSON, with
//! the number of rows and bytes written.

mod arguments;
mod csv;
mod mode;
mod random;
mod steps;

use std::io::{self, Write};
use std::process::ExitCode;

use arguments::Arguments;
use csv::RowBuffer;
use mode::Readings;

/// Written out at once; large enough that a pipe's reader and writer rarely wait for each other.
const OUTPUT_BYTES: usize = 1 << 18;

/// Ten digits, and a multiple of the default step of 300 s.
const FIRST_TS: u64 = 1_700_000_100;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("rrd-gen: {message}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    match generate(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rrd-gen: writing the rows: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(arguments: &Arguments) -> io::Result<()> {
    let mut readings = Readings::new(arguments.mode, arguments.sensors, arguments.seed);
    let mut out = io::stdout().lock();
    let mut buffer = RowBuffer::with_capacity(OUTPUT_BYTES);
    let mut bytes = 0u64;
    let mut written = 0u64;
    let mut ts = FIRST_TS;
    let mut sensor = 0;
    for row in 0..arguments.rows {
        if sensor == arguments.sensors {
            sensor = 0;
            ts += arguments.step_s;
        }
        let before = buffer.len();
        buffer.integer(ts);
        buffer.comma();
        buffer.integer(u64::from(sensor) + 1);
        buffer.comma();
        readings.write_next(sensor, &mut buffer);
        buffer.end_row();
        // The values of a sensor do not depend on which others are written.
        if arguments.share.has(sensor) {
            written += 1;
        } else {
            buffer.truncate(before);
        }
        sensor += 1;
        if buffer.len() >= OUTPUT_BYTES || row + 1 == arguments.rows {
            out.write_all(buffer.as_bytes())?;
            bytes += buffer.len() as u64;
            buffer.clear();
        }
    }
    out.flush()?;
    eprintln!(
        "{{\"rows\": {written}, \"sensors\": {}, \"seed\": {}, \"mode\": \"{}\", \"step_s\": {}, \"csv_bytes\": {bytes}, \
         \"first_ts\": {FIRST_TS}, \"last_ts\": {ts}, \"entropy_bytes_a_row\": {:.4}}}",
        arguments.sensors,
        arguments.seed,
        arguments.mode.name(),
        arguments.step_s,
        readings.entropy_bits_a_row() / 8.0,
    );
    Ok(())
}
