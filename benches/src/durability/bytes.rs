//! The bytes of the log for one put of 10 bytes, in batches of 256: those of the blocks, as the server counts them.

use super::report::{Bar, Row};
use super::side::Asker;
use super::{Run, Section};
use crate::keys::PairForm;
use crate::servers::{Client, Protocol, Source, Template, Verb};

const BATCH: usize = 256;
/// Bytes in addition to those of key and value.
const OVERHEAD_MAX: f64 = 1.3;

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (form, keys) = (PairForm::Random, run.plan.keys);
    let server = run.skep(form, keys, Some((&run.folder.empty("bytes")?, "second")))?;
    let mut asker = Asker::of(&server)?;
    let address = server.address(Protocol::Native).ok_or("the server has no native port")?;
    let mut samples = run.rounds("bytes", 1, super::LONG_ROUNDS).run(run.progress, |_| {
        let before = asker.persistence("skep_log_written_bytes")?;
        // With one connection, a block has one batch.
        let mut client = Client::connect(address, Template::new(Protocol::Native, Verb::Set, form, BATCH), 1)?;
        let tally = client.run(&mut Source::Each(0..keys), None)?;
        asker.wait_for_zero("skep_log_unflushed_bytes")?;
        let written = asker.persistence("skep_log_written_bytes")? - before;
        Ok::<_, String>(written as f64 / tally.operations as f64)
    })?;
    let sizes = samples.swap_remove(0).swap_remove(0);
    let bar = (form.key_size() + form.value_size()) as f64 + OVERHEAD_MAX;
    let name = format!("log bytes of a put of 10 B, batches of {BATCH}");
    let mut row = Row::new(Section::Bytes, name, "B", Some(Bar::AtMost(bar)), sizes);
    row.from = "skep_log_written_bytes / puts: the blocks, without the headers and the zeros of groups".to_owned();
    Ok(vec![row])
}
