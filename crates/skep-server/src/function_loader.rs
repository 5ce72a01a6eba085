//! Loads modules of user functions, for all shards.
//!
//! ```text
//!   source ─▶ compile ─▶ file on disk ─▶ table of functions ─▶ reply
//! ```
//!
//! 1. A thread of its own compiles the source and writes the file, so that no shard waits; one that deletes a module does
//!    the same without a source. Such changes are made one after another. A server that stops waits for these threads.
//! 2. With a data directory, the source is on disk before a shard can find the functions. So the log never names a function
//!    whose source a crash could lose, at any level of durability.
//! 3. The table changes at once for all shards. Requests that were decoded before keep the functions that they have found.
//!
//! Each source has a *revision*, a number that no other source of the server has. The log names a function by the number of
//! its name and by a revision, so a replay runs the code that ran before. A source that was loaded before is not compiled
//! again, and gets its old revision. Code is never freed, so the number of revisions is bounded, and so is that of names.
//!
//! A stored source may no longer compile: another version of Skep may have stored it, or another machine. Then the module is
//! listed with the error, and its functions cannot be called. A server does not start if a call in its log needs it.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity};
use skep_core::function::{CallCounts, FunctionHandle, Layout, UserFunction};
use skep_log::{FUNCTION_NAMES_MAX, Files, FunctionsFile, StoredFunctions, StoredModule};

use crate::limits::{FUNCTION_DESCRIPTION_MAX, FUNCTION_REVISIONS_MAX, FUNCTION_SOURCES_MAX, FUNCTIONS_MAX};
use crate::vocabulary::{FunctionTable, Functions, Revision};
pub(crate) use changes::{Change, ChangeInProgress};
use changes::{Changes, STOPPING, compile};

mod changes;

/// The modules of a server.
#[derive(Debug)]
pub(crate) struct FunctionLoader {
    functions: &'static Functions,
    counts: FunctionCounts,
    /// Is locked while a source is compiled and written.
    loaded: Mutex<Loaded>,
    changes: Mutex<Changes>,
    /// The current modules, by name. Is locked only to copy or change the reference, so that no shard waits.
    listed: Mutex<Arc<Vec<Module>>>,
    usage: Mutex<FunctionUsage>,
    /// The cores of the thread that has made it: its own threads run on these, also if shards are pinned.
    cores: Option<CpuSet>,
}

/// The part of its bounds that a loader has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionUsage {
    /// Functions of the current modules, at most [`FUNCTIONS_MAX`]. A module that does not compile counts as one.
    pub(crate) functions: usize,
    /// Sources, also old ones, at most [`FUNCTION_REVISIONS_MAX`].
    pub(crate) sources: usize,
    /// Their bytes, at most [`FUNCTION_SOURCES_MAX`].
    pub(crate) source_bytes: usize,
    /// Names of functions, also old ones, at most [`FUNCTION_NAMES_MAX`].
    pub(crate) names: usize,
}

/// All that was loaded.
#[derive(Default)]
struct Loaded {
    names: Arc<FunctionNames>,
    modules: Vec<Module>,
    /// Where they are stored, if the server has a data directory.
    file: Option<FunctionsFile<Files>>,
}

/// The names of all functions that there ever were. Each has a number, from 1.
#[derive(Clone, Debug, Default)]
struct FunctionNames {
    in_order: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

/// A source that was loaded.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) revision: u32,
    /// The functions of the module are those of this source.
    is_current: bool,
    pub(crate) source: Arc<str>,
    code: Code,
}

/// The code of a source.
#[derive(Clone, Debug)]
enum Code {
    /// The source was loaded before the start, and nothing has needed it since.
    Unneeded,
    Compiled(Compiled),
    /// The source was loaded before the start, and does not compile any more.
    Refused(Arc<str>),
}

/// The counters of functions. One that is replaced or deleted keeps them, and its successor counts on.
#[derive(Debug)]
struct FunctionCounts {
    /// The shards that count calls.
    shard_count: usize,
    by_name: Mutex<HashMap<String, &'static CallCounts>>,
}

/// The functions and records of a source.
#[derive(Clone, Debug)]
struct Compiled {
    functions: Vec<&'static UserFunction>,
    /// The numbers of their names.
    numbers: Vec<u32>,
    records: Vec<Record>,
    /// What each function takes and returns, and what each record has, as far as a reply may have it. Modules are copied
    /// with each change.
    descriptions: Arc<[String]>,
    record_descriptions: Arc<[String]>,
}

/// A record of a module.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) layout: &'static Layout,
}

/// The reason why a call in the log has no function.
#[derive(Debug, PartialEq)]
pub(crate) enum Unresolved {
    /// There was never such a function.
    Unknown,
    /// Its module does not compile any more.
    Refused { module: String, error: Arc<str> },
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} modules", self.modules.len())
    }
}

impl FunctionLoader {
    /// Returns a loader without functions. Each of these shards counts the calls that it runs.
    pub(crate) fn new(shard_count: usize) -> FunctionLoader {
        FunctionLoader {
            functions: Functions::leaked(),
            counts: FunctionCounts { shard_count, by_name: Mutex::default() },
            loaded: Mutex::default(),
            changes: Mutex::default(),
            listed: Mutex::default(),
            usage: Mutex::default(),
            cores: sched_getaffinity(None).ok(),
        }
    }

    /// Returns the functions, as requests find them.
    pub(crate) fn functions(&self) -> &'static Functions {
        self.functions
    }

    /// Takes over the functions of a data directory, and compiles those of the current modules.
    pub(crate) fn restore(&self, stored: StoredFunctions, file: FunctionsFile<Files>) {
        let mut loaded = self.loaded();
        loaded.names = Arc::new(FunctionNames::new(&stored.names));
        for StoredModule { name, revision, is_current, source } in stored.modules {
            let mut module = Module { name, revision, is_current, source: source.into(), code: Code::Unneeded };
            if is_current {
                module.compile_again(&loaded.names, &self.counts);
            }
            loaded.modules.push(module);
        }
        loaded.file = Some(file);
        self.publish(&loaded);
    }

    /// Returns the handle of a call in the log with the function that it names, also one that was replaced before the
    /// start. Then its source is compiled. Returns an error if there is no such function, or its module does not compile.
    pub(crate) fn resolve(&self, handle: FunctionHandle) -> Result<FunctionHandle, Unresolved> {
        let resolved = || Some(self.functions.resolve(handle)).filter(|found| found.function.is_some());
        if let Some(found) = resolved() {
            return Ok(found);
        }
        let mut guard = self.loaded();
        let loaded = &mut *guard;
        let module = loaded.modules.iter_mut().find(|module| module.revision == handle.revision);
        let module = module.ok_or(Unresolved::Unknown)?;
        if matches!(module.code, Code::Unneeded) {
            module.compile_again(&loaded.names, &self.counts);
        }
        if let Some(error) = module.error() {
            return Err(Unresolved::Refused { module: module.name.clone(), error: error.clone() });
        }
        // Of the table, nothing else changes: an old source is not the current one of its module.
        self.functions.change(|table| table.revisions.extend(module.revisions()));
        resolved().ok_or(Unresolved::Unknown)
    }

    fn make(&self, change: &Change) -> Result<Option<String>, String> {
        match change {
            Change::Load { source, replaces } => self.load(source, *replaces).map(Some),
            Change::Delete { name } => Ok(self.delete(name)?.then(|| name.clone())),
        }
    }

    /// Loads a module. Returns its name.
    pub(crate) fn load(&self, source: &str, replaces: bool) -> Result<String, String> {
        let mut loaded = self.loaded_for_change()?;
        let known = loaded.modules.iter().position(|module| *module.source == *source);
        if let Some(index) = known {
            let Loaded { names, modules, .. } = &mut *loaded;
            let module = &mut modules[index];
            if module.compiled().is_none() {
                module.compile_again(names, &self.counts);
            }
            if let Some(error) = module.error() {
                return Err(error.to_string());
            }
        }
        let new = if known.is_none() { Some(compile(source)?) } else { None };
        let old_name = known.map(|index| loaded.modules[index].name.clone());
        let name = old_name.or_else(|| new.as_ref().map(|new| new.name.clone())).expect("it is known or new");
        if known.is_some_and(|index| loaded.modules[index].is_current) {
            return Ok(name);
        }
        if !replaces && loaded.current(&name).is_some() {
            return Err(format!(
                "module '{name}' exists: to replace its functions, use LOAD REPLACE, --replace, or a put over the native protocol"
            ));
        }
        let mut next = loaded.with_current(&name, known);
        if let Some(new) = &new {
            let revision = next.modules.iter().map(|module| module.revision).max().unwrap_or(0) + 1;
            Arc::make_mut(&mut next.names).add(&new.functions)?;
            let (name, is_current, source) = (name.clone(), true, source.into());
            next.modules.push(Module { name, revision, is_current, source, code: Code::Unneeded });
        }
        next.check_bounds(new.as_ref())?;
        loaded.store(&next)?;
        // Only now: the code of a source that is refused is freed.
        if let Some((new, module)) = new.zip(next.modules.last_mut()) {
            module.code = Code::Compiled(Compiled::new(new, &next.names, &self.counts));
        }
        self.replace(&mut loaded, next);
        Ok(name)
    }

    /// Removes a module. Its functions are no longer found. Returns false if there is none of this name.
    fn delete(&self, name: &str) -> Result<bool, String> {
        let mut loaded = self.loaded_for_change()?;
        if loaded.current(name).is_none() {
            return Ok(false);
        }
        let next = loaded.with_current(name, None);
        loaded.store(&next)?;
        self.replace(&mut loaded, next);
        Ok(true)
    }

    /// Logs the current modules that do not compile. Call it when the start cannot be refused any more.
    pub(crate) fn log_refused(&self) {
        for module in self.modules().iter() {
            if let Some(error) = module.error() {
                let name = &module.name;
                // As a field, because it has parts of a source of a client: the format escapes them.
                tracing::error!(
                    error = &**error,
                    "module {name} of functions does not compile, so calls of it are refused"
                );
            }
        }
    }

    /// Returns the current modules, by name.
    pub(crate) fn modules(&self) -> Arc<Vec<Module>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the part of the bounds that is used.
    pub(crate) fn usage(&self) -> FunctionUsage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the shards find what is loaded after a change.
    fn replace(&self, loaded: &mut Loaded, mut next: Loaded) {
        next.file = loaded.file.take();
        *loaded = next;
        self.publish(loaded);
    }

    fn publish(&self, loaded: &Loaded) {
        let (table, listed) = (loaded.table(), Arc::new(loaded.listed()));
        // The table before is freed when no shard waits for it.
        drop(self.functions.change(|current| mem::replace(current, table)));
        let before = mem::replace(&mut *self.listed.lock().unwrap_or_else(PoisonError::into_inner), listed);
        drop(before);
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = loaded.usage();
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the changes before. Returns an error if the server stops meanwhile.
    fn loaded_for_change(&self) -> Result<MutexGuard<'_, Loaded>, String> {
        let loaded = self.loaded();
        if self.changes().is_stopping { Err(STOPPING.to_owned()) } else { Ok(loaded) }
    }
}

impl Module {
    /// Returns the functions. A current module has them, unless it does not compile.
    pub(crate) fn functions(&self) -> &[&'static UserFunction] {
        self.compiled().map_or(&[], |compiled| &compiled.functions)
    }

    /// Returns the numbers of the functions.
    pub(crate) fn numbers(&self) -> &[u32] {
        self.compiled().map_or(&[], |compiled| &compiled.numbers)
    }

    /// Returns the records. A current module has them, unless it does not compile.
    pub(crate) fn records(&self) -> &[Record] {
        self.compiled().map_or(&[], |compiled| &compiled.records)
    }

    /// Returns what each of its functions takes and returns.
    pub(crate) fn descriptions(&self) -> &[String] {
        self.compiled().map_or(&[], |compiled| &compiled.descriptions)
    }

    /// Returns what each of its records has.
    pub(crate) fn record_descriptions(&self) -> &[String] {
        self.compiled().map_or(&[], |compiled| &compiled.record_descriptions)
    }

    /// Returns the reason why the source does not compile, as far as a reply may have it.
    pub(crate) fn error_excerpt(&self) -> Option<String> {
        self.error().map(|error| shorten(error.to_string()))
    }

    /// Returns the reason why the source does not compile, if that is known.
    pub(crate) fn error(&self) -> Option<&Arc<str>> {
        if let Code::Refused(error) = &self.code { Some(error) } else { None }
    }

    /// Returns the functions with the names that the log gives them.
    fn revisions(&self) -> impl Iterator<Item = (Revision, &'static UserFunction)> {
        let revision = |id: u32| Revision { id, revision: self.revision };
        self.numbers().iter().map(move |id| revision(*id)).zip(self.functions().iter().copied())
    }

    fn compiled(&self) -> Option<&Compiled> {
        if let Code::Compiled(compiled) = &self.code { Some(compiled) } else { None }
    }

    /// Compiles a source that was loaded before the start. Its functions must be among those that have numbers.
    fn compile_again(&mut self, names: &FunctionNames, counts: &FunctionCounts) {
        let check = |module: skep_function::Module| {
            let has_number = |function: &UserFunction| names.number(&function.name).is_some();
            let is_known = module.name == self.name && module.functions.iter().all(has_number);
            if is_known { Ok(module) } else { Err("its functions are not those that were stored".to_owned()) }
        };
        self.code = match compile(&self.source).and_then(check) {
            Ok(module) => Code::Compiled(Compiled::new(module, names, counts)),
            Err(error) => Code::Refused(error.into()),
        };
    }
}

impl Loaded {
    fn current(&self, name: &str) -> Option<&Module> {
        self.modules.iter().find(|module| module.is_current && module.name == name)
    }

    /// Returns the same, except that the module of this name has the source at this index, or none.
    fn with_current(&self, name: &str, chosen: Option<usize>) -> Loaded {
        let mut modules = self.modules.clone();
        for (index, module) in modules.iter_mut().enumerate().filter(|(_, module)| module.name == name) {
            module.is_current = Some(index) == chosen;
        }
        Loaded { names: Arc::clone(&self.names), modules, file: None }
    }

    /// Writes what is loaded after a change to the data directory, if there is one.
    fn store(&mut self, next: &Loaded) -> Result<(), String> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write(&next.stored()).map_err(|error| format!("the module cannot be stored: {error}"))
    }

    /// Returns an error if there are too many functions or records, with those of a new module, or sources.
    fn check_bounds(&self, new: Option<&skep_function::Module>) -> Result<(), String> {
        let FunctionUsage { functions, sources, source_bytes, .. } = self.usage();
        if functions + new.map_or(0, |new| new.functions.len()) > FUNCTIONS_MAX {
            return Err(format!("a server has at most {FUNCTIONS_MAX} functions: delete modules"));
        }
        let current = self.modules.iter().filter(|module| module.is_current);
        let records: usize = current.map(|module| module.records().len()).sum();
        if records + new.map_or(0, |new| new.records.len()) > FUNCTIONS_MAX {
            return Err(format!("the modules of a server have at most {FUNCTIONS_MAX} structs: delete modules"));
        }
        if sources > FUNCTION_REVISIONS_MAX || source_bytes > FUNCTION_SOURCES_MAX {
            return Err(format!(
                "the server keeps each source that it was given, at most {FUNCTION_REVISIONS_MAX} different ones of \
                 {FUNCTION_SOURCES_MAX} bytes together: pass what changes as an operand, not in the source; DELETE frees none"
            ));
        }
        Ok(())
    }

    fn usage(&self) -> FunctionUsage {
        // A module that does not compile is listed too.
        let count = |module: &Module| module.functions().len() + usize::from(module.error().is_some());
        FunctionUsage {
            functions: self.modules.iter().filter(|module| module.is_current).map(count).sum(),
            sources: self.modules.len(),
            source_bytes: self.modules.iter().map(|module| module.source.len()).sum(),
            names: self.names.in_order.len(),
        }
    }

    fn stored(&self) -> StoredFunctions {
        let stored = |module: &Module| StoredModule {
            name: module.name.clone(),
            revision: module.revision,
            is_current: module.is_current,
            source: module.source.to_string(),
        };
        let names = self.names.in_order.iter().map(ToString::to_string).collect();
        StoredFunctions { names, modules: self.modules.iter().map(stored).collect() }
    }

    fn listed(&self) -> Vec<Module> {
        let mut modules: Vec<Module> = self.modules.iter().filter(|module| module.is_current).cloned().collect();
        modules.sort_by(|a, b| a.name.cmp(&b.name));
        modules
    }

    fn table(&self) -> FunctionTable {
        let mut table = FunctionTable { newest: vec![None; self.names.in_order.len()], ..FunctionTable::default() };
        for module in &self.modules {
            table.revisions.extend(module.revisions());
            for (Revision { id, revision }, function) in module.revisions().filter(|_| module.is_current) {
                let handle = FunctionHandle { id, revision, function: Some(function) };
                table.newest[id as usize - 1] = Some(handle);
                table.names.insert(&function.name, handle);
            }
            if let Some(error) = module.error().filter(|_| module.is_current) {
                table.refused.insert(module.name.clone(), error.clone());
            }
            let records = module.records().iter().filter(|_| module.is_current);
            table.records.extend(records.map(|record| (record.name.clone(), record.layout)));
        }
        table
    }
}

impl FunctionNames {
    fn new(in_order: &[String]) -> FunctionNames {
        let mut names = FunctionNames::default();
        for (name, number) in in_order.iter().zip(1..) {
            let name = Arc::<str>::from(&**name);
            names.numbers.entry(Arc::clone(&name)).or_insert(number);
            names.in_order.push(name);
        }
        names
    }

    /// Returns the number of a name.
    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Gives a number to each name that is new. Returns an error if there are too many then.
    fn add(&mut self, functions: &[UserFunction]) -> Result<(), String> {
        for UserFunction { name, .. } in functions {
            if self.numbers.contains_key(&**name) {
                continue;
            }
            if self.in_order.len() >= FUNCTION_NAMES_MAX {
                return Err(format!(
                    "the server keeps each name that a function ever had, at most {FUNCTION_NAMES_MAX}: use names of functions \
                     that it had before; DELETE frees none"
                ));
            }
            let name = Arc::<str>::from(&**name);
            self.in_order.push(Arc::clone(&name));
            self.numbers.insert(name, self.in_order.len() as u32);
        }
        Ok(())
    }
}

impl Compiled {
    /// Returns what was compiled, with the numbers of its functions. From now on, the code lives as long as the process.
    fn new(module: skep_function::Module, names: &FunctionNames, counts: &FunctionCounts) -> Compiled {
        let number = |function: &UserFunction| names.number(&function.name).expect("each name has got a number");
        let leak = |mut function: UserFunction| {
            function.counts = Some(counts.of(&function.name));
            &*Box::leak(Box::new(function))
        };
        let record = |(name, layout)| Record { name, layout: Box::leak(Box::new(layout)) };
        let describe = |function: &UserFunction| shorten(function.signature.describe(function.kind(), &function.name));
        Compiled {
            numbers: module.functions.iter().map(number).collect(),
            descriptions: module.functions.iter().map(describe).collect(),
            record_descriptions: module
                .records
                .iter()
                .map(|(name, layout)| shorten(format!("{name} {layout}")))
                .collect(),
            functions: module.functions.into_iter().map(leak).collect(),
            records: module.records.into_iter().map(record).collect(),
        }
    }
}

impl FunctionCounts {
    /// Returns the counters of the function of this name. They live as long as the process.
    fn of(&self, name: &str) -> &'static CallCounts {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || &*Box::leak(Box::new(CallCounts::new(self.shard_count)));
        by_name.entry(name.to_owned()).or_insert_with(new)
    }
}

/// Returns as much of a description as a reply may have.
pub(crate) fn shorten(text: String) -> String {
    match text.char_indices().nth(FUNCTION_DESCRIPTION_MAX / 4) {
        Some((end, _)) if text.len() > FUNCTION_DESCRIPTION_MAX => format!("{}…", &text[..end]),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
