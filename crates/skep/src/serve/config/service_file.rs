//! The configuration file of a service, which packages install.

use std::path::Path;

use super::DEFAULT_CONFIGURATION;

/// Returns the configuration file of a service: all settings are comments with their defaults, except the data directory.
pub(crate) fn service_configuration(data_dir: &Path) -> String {
    let head = "# The settings of the service skep. Lines that begin with # are comments. Those with a setting show its\n\
                # default or an example: remove the #, change the value, and restart the service.\n";
    let (_, settings) = DEFAULT_CONFIGURATION.split_once("\n\n").expect("the file has a head");
    let lines = settings.lines().map(|line| match line {
        _ if line.starts_with("# data-dir = ") => format!("data-dir = {:?}", data_dir.display().to_string()),
        _ if line.is_empty() || line.starts_with('#') => line.to_owned(),
        _ => format!("# {line}"),
    });
    let lines: String = lines.map(|line| line + "\n").collect();
    format!("{head}\n{lines}")
}
