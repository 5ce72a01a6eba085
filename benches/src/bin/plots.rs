//! `plots`: writes `docs/performance.md` and one SVG for each saved result into `docs/plots`.

use std::path::Path;
use std::process::ExitCode;

use skep_benches::page::write;
use skep_benches::results::folder;

fn main() -> ExitCode {
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    match write(&folder(), &documents) {
        Ok(written) if written.is_empty() => {
            eprintln!("no results in {}: the other programs write them with --save", folder().display());
            ExitCode::FAILURE
        }
        Ok(written) => {
            written.iter().for_each(|path| println!("{}", path.display()));
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
