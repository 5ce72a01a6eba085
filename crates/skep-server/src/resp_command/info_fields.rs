//! The lines of `INFO`.

/// Appends `key:value` lines.
macro_rules! fields {
    ($text:ident $($key:literal $value:expr)*) => {
        $(write!($text, concat!($key, ":{}\r\n"), $value).expect("a String takes every text");)*
    };
}

pub(super) use fields;
