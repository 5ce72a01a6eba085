//! `skep package-files`: writes the files of a package that follow from the program itself.
//!
//! - `man/`: a manual page for the program, and one for each subcommand (`skep-cli-put.1`);
//! - `completions/`: `skep.bash`, `_skep` (zsh) and `skep.fish`;
//! - `skep.toml`: the configuration file of a service. All settings are comments with their defaults, except the data
//!   directory.
//!
//! Pages and completions are generated from the table of arguments, so they cannot differ from the program.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::{Failure, reason};
use crate::serve::service_configuration;

/// Writes the files.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The folder for man/, completions/ and skep.toml; it is made if it does not exist.
    folder: PathBuf,
    /// The data directory in skep.toml.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/skep")]
    data_dir: PathBuf,
}

/// Writes the files of a package into a folder.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = &arguments.folder;
    write(folder, &arguments.data_dir)
        .map_err(|error| Failure::Runtime(format!("cannot write to {}: {}", folder.display(), reason(&error))))
}

fn write(folder: &Path, data_dir: &Path) -> std::io::Result<()> {
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(crate::Arguments::command(), &pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut crate::Arguments::command(), "skep", &completions)?;
    }
    fs::write(folder.join("skep.toml"), service_configuration(data_dir))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;

    use super::write;

    /// Asserts that a command and all subcommands below it have a page, and that the page has the name of each option.
    fn check_pages(pages: &Path, command: &clap::Command, prefix: &str) -> usize {
        let name = format!("{prefix}{}", command.get_name());
        let page =
            fs::read_to_string(pages.join(format!("{name}.1"))).unwrap_or_else(|error| panic!("{name}: {error}"));
        let plain = page.replace('\\', "");
        assert!(page.contains(".TH ") && page.contains("SYNOPSIS"), "{name}");
        for option in command.get_opts().filter(|option| !option.is_hide_set()).filter_map(clap::Arg::get_long) {
            assert!(plain.contains(&format!("--{option}")), "the page of {name} lacks --{option}");
        }
        let below = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
        1 + below.map(|command| check_pages(pages, command, &format!("{name}-"))).sum::<usize>()
    }

    #[test]
    fn each_subcommand_has_a_page_and_each_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "/var/lib/skep".as_ref()).unwrap();
        let count = check_pages(&folder.path().join("man"), &crate::Arguments::command(), "");
        assert_eq!(fs::read_dir(folder.path().join("man")).unwrap().count(), count, "no other pages");
        for file in ["skep.bash", "_skep", "skep.fish"] {
            let text = fs::read_to_string(folder.path().join("completions").join(file)).unwrap();
            assert!(text.contains("ordered-memory") && text.contains("restore"), "{file}");
        }
        let configuration = fs::read_to_string(folder.path().join("skep.toml")).unwrap();
        assert!(configuration.contains("\ndata-dir = \"/var/lib/skep\"\n"));
    }
}
