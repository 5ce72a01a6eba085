//! `plots`: draws every saved result of `benches/results` to `docs/plots`, one SVG each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use skep_benches::plot::Plot;
use skep_benches::results::folder;
use skep_benches::{maps, servers};

fn main() -> ExitCode {
    let plots = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plots");
    match draw_all(&folder(), &plots) {
        Ok(0) => {
            eprintln!("no results in {}: `maps --save` and `servers --save` write them", folder().display());
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Draws all results of a folder; how many there were.
fn draw_all(results: &Path, plots: &Path) -> Result<usize, String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: &dyn std::fmt::Display| format!("{path}: {error}")
    };
    if !results.is_dir() {
        return Ok(0);
    }
    fs::create_dir_all(plots).map_err(|error| failed(plots)(&error))?;
    let entries = fs::read_dir(results).map_err(|error| failed(results)(&error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    for path in &paths {
        let text = fs::read_to_string(path).map_err(|error| failed(path)(&error))?;
        let plot = read(&text).map_err(|error| failed(path)(&error))?;
        let svg = plots.join(path.with_extension("svg").file_name().unwrap_or_default());
        plot.write(&svg)?;
        println!("{}", svg.display());
    }
    Ok(paths.len())
}

/// The picture of a result of either kind.
fn read(text: &str) -> Result<Plot, serde_json::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Result {
        Maps(maps::Report),
        Servers(servers::Report),
    }
    Ok(match serde_json::from_str(text)? {
        Result::Maps(report) => Plot::of_maps(&report),
        Result::Servers(report) => Plot::of_servers(&report),
    })
}
