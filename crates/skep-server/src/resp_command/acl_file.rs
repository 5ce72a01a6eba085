//! The file of users: a line `user NAME rules…` for each, as Redis has it. Lines that begin with `#`, and blank ones, say
//! nothing.
//!
//! A file is taken as a whole or not at all. It describes all users: one that it lacks does not exist, but `default`, which
//! then stays as it is. To write it, a new file beside it takes its place, so a reader never finds half of one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::acl_rules::{apply, describe};
use crate::access::{USERS_MAX, User, UserTable, UsersError, log_text};

/// The most bytes of a file of users, and of all users as a file.
pub(super) const FILE_SIZE_MAX: usize = 1 << 20;

/// Reads a file, which need not name the default user.
pub(crate) fn read(path: &Path) -> Result<UserTable, UsersError> {
    parse_file(path, &read_bytes(path)?)
}

/// Reads a file that takes the place of users. An empty one is not taken if there are some: a full disk leaves such files.
pub(crate) fn read_again(path: &Path, before: &UserTable) -> Result<UserTable, UsersError> {
    let bytes = read_bytes(path)?;
    // The default user is in each table.
    if bytes.is_empty() && before.len() > 1 {
        let reason =
            "it is empty, and would delete all users: write the users to it, or only a comment (#) to delete them";
        return Err(UsersError::File { path: path.to_owned(), reason: reason.to_owned() });
    }
    parse_file(path, &bytes)
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, UsersError> {
    let wrong_file = |reason: String| UsersError::File { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(FILE_SIZE_MAX as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| wrong_file(format!("{error}: choose a file of users that the server may read")))?;
    if bytes.len() > FILE_SIZE_MAX {
        return Err(wrong_file(format!("it has more than {FILE_SIZE_MAX} bytes: remove users or rules")));
    }
    if bytes.last().is_some_and(|byte| *byte != b'\n') {
        let reason = "its last line has no end, so it may not be complete: end the last line with a newline";
        return Err(wrong_file(reason.to_owned()));
    }
    Ok(bytes)
}

fn parse_file(path: &Path, bytes: &[u8]) -> Result<UserTable, UsersError> {
    let mut users = BTreeMap::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let wrong_line = |reason| UsersError::Line { path: path.to_owned(), line: index + 1, reason };
        if let Some(user) = parse(line).map_err(wrong_line)?
            && let Some(twice) = users.insert(user.name.clone(), Arc::new(user))
        {
            return Err(wrong_line(format!("the user {} is in the file twice", twice.name)));
        }
    }
    if users.len() > USERS_MAX {
        let reason = format!("it has more than {USERS_MAX} users: remove some");
        return Err(UsersError::File { path: path.to_owned(), reason });
    }
    Ok(users)
}

/// Opens a file. Does not wait for the writer of a pipe: that would keep the server from ending.
fn open(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Parses a line. `None`: it says nothing.
fn parse(line: &[u8]) -> Result<Option<User>, String> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    match words.next() {
        None | Some([b'#', ..]) => return Ok(None),
        Some(b"user") => {}
        Some(_) => return Err("it does not begin with 'user NAME'".to_owned()),
    }
    let name = words.next().ok_or("the name of the user is missing")?;
    let mut user = new_user(name).ok_or("the name of a user is text of 1 to 128 bytes")?;
    for rule in words {
        // It may be a password, or the hash of one.
        let shown = if b"><#!".contains(&rule[0]) { &b"(hidden)"[..] } else { rule };
        apply(&mut user, rule).map_err(|reason| format!("the rule '{}': {reason}", on_one_line(shown)))?;
    }
    Ok(Some(user))
}

/// Returns bytes of the file for a message: control characters are escaped.
fn on_one_line(bytes: &[u8]) -> String {
    let escaped = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    log_text(bytes).chars().map(escaped).collect()
}

/// Returns a new user of this name, if it may be one.
pub(super) fn new_user(name: &[u8]) -> Option<User> {
    let name = std::str::from_utf8(name).ok().filter(|name| (1..=USER_NAME_SIZE_MAX).contains(&name.len()))?;
    let is_written_as_is = !name.chars().any(|c| c.is_whitespace() || c.is_control());
    is_written_as_is.then(|| User::new(name))
}

/// The most bytes of the name of a user.
const USER_NAME_SIZE_MAX: usize = 128;

/// Held while a file of users is written.
static SAVE: Mutex<()> = Mutex::new(());

/// The most symbolic links that lead to a file, as in Linux.
const LINKS_MAX: usize = 40;

/// Returns the file to which the symbolic links at a path lead. It need not exist.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Writes the users to a file. A symbolic link stays: the file to which it leads is replaced.
pub(super) fn write(path: &Path, users: &UserTable) -> Result<(), String> {
    let mut text = Vec::new();
    for user in users.values() {
        text.extend(describe(user));
        text.push(b'\n');
    }
    if text.len() > FILE_SIZE_MAX {
        return Err(format!("the users take {} bytes as a file, and only {FILE_SIZE_MAX} can be read", text.len()));
    }
    // One at a time, so that the last one wins as a whole.
    let _save = SAVE.lock().unwrap_or_else(PoisonError::into_inner);
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    let file = behind_links(path).map_err(wrong)?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let write = || -> io::Result<()> {
        // What a save before has left there. A file of others is neither followed nor kept.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // No one else may read the hashes.
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        new.write_all(&text)?;
        new.sync_all()?;
        std::fs::rename(&beside, &file)?;
        File::open(file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        wrong(error)
    })
}

#[cfg(test)]
mod tests {
    use super::{FILE_SIZE_MAX, new_user, parse, read, read_again, write};
    use crate::resp_command::acl_rules::describe;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        let text = "# comment\n\n  user cook on >ham #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4 ~a* %R~b \
                    &c space:ordered operations:7 +@read -get +config|get\r\nuser zoe\n";
        std::fs::write(&path, text).unwrap();
        let users = read(&path).unwrap();
        assert_eq!(users.keys().map(|name| &**name).collect::<Vec<_>>(), ["cook", "zoe"]);
        write(&path, &users).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(!written.contains("ham"), "{written}");
        let again = read(&path).unwrap();
        for (user, other) in users.values().zip(again.values()) {
            assert_eq!(describe(user), describe(other));
            assert_eq!(user.permissions.commands, other.permissions.commands);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_file_deletes_no_users() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        std::fs::write(&path, "user default on\nuser cook on\n").unwrap();
        let users = read(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let error = read_again(&path, &users).unwrap_err().to_string();
        assert!(error.contains("users.acl: it is empty, and would delete all users"), "{error}");
        let only_default =
            users.iter().take(1).chain(users.iter().skip(2)).map(|(name, user)| (name.clone(), user.clone()));
        assert!(read_again(&path, &only_default.collect()).unwrap().is_empty(), "there is nothing to delete");
        assert!(read(&path).unwrap().is_empty(), "a start");
        std::fs::write(&path, "# no users\n").unwrap();
        assert!(read_again(&path, &users).unwrap().is_empty(), "this one is meant");
    }

    #[test]
    fn a_symbolic_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let [link, second, file] = ["users.acl", "second", "data/users.acl"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("second", &link).unwrap();
        std::os::unix::fs::symlink("data/users.acl", &second).unwrap();
        for begin in ["user zoe\n", "user adam\n"] {
            std::fs::write(&file, begin).unwrap();
            let users = [new_user(b"cook").unwrap()].map(|user| (user.name.clone(), user.into())).into();
            write(&link, &users).unwrap();
            assert!(link.is_symlink() && second.is_symlink() && !file.is_symlink());
            assert_eq!(read(&file).unwrap().len(), 1);
            assert!(std::fs::read_to_string(&file).unwrap().starts_with("user cook "));
            std::fs::remove_file(&file).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path().join("data")).unwrap().count(), 0);
        std::os::unix::fs::symlink("users.acl", &file).unwrap();
        assert!(write(&file, &Default::default()).unwrap_err().contains("too many symbolic links"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert!(parse(b"user a non\x1bsense").unwrap_err().contains(r"the rule 'non\u{1b}sense'"));
        for (line, expected) in [
            ("usr a", "does not begin with"),
            ("user", "name of the user is missing"),
            ("user a nonsense", "the rule 'nonsense': Syntax error"),
            ("user a +nosuch", "Unknown command"),
            ("user a >secret ~* ~b", "Adding a pattern after"),
            ("user a #12", "64 characters"),
        ] {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{line}: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path).unwrap_err().to_string()
        };
        assert!(error("user a on\nuser b\nuser a off\n").contains("line 3: the user a is in the file twice"));
        assert!(error(&"#".repeat(FILE_SIZE_MAX + 1)).contains("more than 1048576 bytes"));
        // What could not be read is not written.
        let before = std::fs::read(&path).unwrap();
        let users = (0..1 << 13).map(|number| new_user(format!("{number:0128}").as_bytes()).unwrap());
        let users = users.map(|user| (user.name.clone(), user.into())).collect();
        assert!(write(&path, &users).unwrap_err().contains("only 1048576 can be read"));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert!(error("user a on\nuser b on +@all").ends_with("not be complete: end the last line with a newline"));
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(read(&pipe).unwrap_err().to_string().contains("not a regular file"));
        assert!(read(folder.path()).unwrap_err().to_string().contains("choose a file"));
    }
}
