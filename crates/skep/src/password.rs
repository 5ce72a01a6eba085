//! The password of a server, for its clients: from a file or the environment. It is never printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skep::{ClientSettings, PASSWORD_SIZE_MAX, Password};

use crate::failure::{Failure, reason};

/// The environment variable with the password.
const VARIABLE: &str = "SKEP_PASSWORD";

/// The source of the password for a client.
#[derive(clap::Args, Debug)]
pub(crate) struct PasswordSource {
    /// File whose first line is the password of the server [default: the environment variable SKEP_PASSWORD, if it is
    /// set].
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Name of the user whose password this is [default: default].
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,
}

/// A server and how to log in.
#[derive(Debug)]
pub(crate) struct Login {
    /// The native address of the server.
    pub(crate) address: String,
    /// Its password, if it has one, and the timeouts.
    pub(crate) settings: ClientSettings,
}

impl Login {
    /// Returns the login at a URL, which may have a user and a password, with the timeouts of this one.
    pub(crate) fn of_url(&self, url: &str) -> Login {
        let ClientSettings { connect_timeout, reply_timeout, .. } = self.settings;
        let settings = ClientSettings { connect_timeout, reply_timeout, ..ClientSettings::default() };
        Login { address: url.to_owned(), settings }
    }

    /// Sets both timeouts, if one is given.
    pub(crate) fn set_timeout(&mut self, timeout: Option<Duration>) {
        if let Some(timeout) = timeout {
            (self.settings.connect_timeout, self.settings.reply_timeout) = (timeout, timeout);
        }
    }

    /// Returns the login at an address with the password of a source.
    pub(crate) fn new(address: &str, source: &PasswordSource) -> Result<Login, Failure> {
        let password = match &source.password_file {
            Some(path) => Some(read(path)?),
            None => match std::env::var(VARIABLE) {
                Ok(text) if !text.is_empty() => {
                    let refusal = || Failure::Usage(format!("{VARIABLE} is too long: {SIZES}"));
                    Some(Password::new(text.as_bytes()).ok_or_else(refusal)?)
                }
                _ => None,
            },
        };
        let user = source.user.clone().unwrap_or_default();
        if password.is_none() && !user.is_empty() {
            return Err(Failure::Usage(format!("a user needs a password: add --password-file, or set {VARIABLE}")));
        }
        Ok(Login {
            address: address.to_owned(),
            settings: ClientSettings { user, password, ..ClientSettings::default() },
        })
    }
}

const SIZES: &str = "a password has 1 to 512 bytes";
const _: () = assert!(PASSWORD_SIZE_MAX == 512);

/// Returns the first line of a file.
pub(crate) fn read(path: &Path) -> Result<Password, Failure> {
    let bytes = fs::read(path).map_err(|error| {
        Failure::Usage(format!("cannot read the password in {}: {}", path.display(), reason(&error)))
    })?;
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Password::new(line).ok_or_else(|| {
        Failure::Usage(format!("the first line of {} has {} bytes: {SIZES}", path.display(), line.len()))
    })
}

/// Parses the password of a flag or a configuration file. An empty one is refused: it may be a variable that was not set.
pub(crate) fn parse(text: &str) -> Result<Password, String> {
    Password::new(text.as_bytes()).ok_or_else(|| SIZES.to_owned())
}
