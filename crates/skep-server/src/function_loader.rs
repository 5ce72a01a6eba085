//! Loads modules of user functions, for all shards.
//!
//! ```text
//!   source ─▶ compile ─▶ file on disk ─▶ table of functions ─▶ reply
//! ```
//!
//! 1. A thread of its own compiles the source and writes the file, so that no shard waits; one that deletes a module does
//!    the same without a source. Such changes are made one after another.
//! 2. With a data directory, the source is on disk before a shard can find the functions. So the log never names a function
//!    whose source a crash could lose, at any level of durability.
//! 3. The table changes at once for all shards. Requests that were decoded before keep the functions that they have found.
//!
//! Each source has a *revision*, a number that no other source of the server has. The log names a function by the number of
//! its name and by a revision, so a replay runs the code that ran before. A source that was loaded before is not compiled
//! again, and gets its old revision. Code is never freed, so the number of revisions is bounded.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use skep_core::function::{FunctionHandle, Layout, UserFunction};
use skep_log::{Files, FunctionsFile, StoredFunctions, StoredModule};

use crate::limits::{FUNCTION_LOADS_MAX, FUNCTION_REVISIONS_MAX, FUNCTION_SOURCES_MAX, FUNCTIONS_MAX};
use crate::vocabulary::{FunctionTable, Functions, Revision};

/// The modules of a server.
#[derive(Debug)]
pub(crate) struct FunctionLoader {
    functions: &'static Functions,
    /// Is locked while a source is compiled and written.
    loaded: Mutex<Loaded>,
    /// Changes that are in progress.
    in_progress: Mutex<usize>,
    /// The current modules, by name. Is locked only to copy or change the reference, so that no shard waits.
    listed: Mutex<Arc<Vec<ListedModule>>>,
}

/// A change of the modules.
#[derive(Debug)]
pub(crate) enum Change {
    /// Loads a module.
    Load {
        source: String,
        /// Also if there is a module of its name.
        replaces: bool,
    },
    /// Removes a module.
    Delete { name: String },
}

/// A current module, as it is shown.
#[derive(Debug)]
pub(crate) struct ListedModule {
    pub(crate) module: Module,
    /// The numbers of its functions.
    pub(crate) numbers: Vec<u32>,
}

/// All that was loaded.
#[derive(Default)]
struct Loaded {
    /// The names of all functions that there ever were: that of function 1 is the first.
    names: Vec<String>,
    modules: Vec<Module>,
    /// Where they are stored, if the server has a data directory.
    file: Option<FunctionsFile<Files>>,
}

/// A source that was loaded.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) revision: u32,
    /// The functions of the module are those of this source.
    is_current: bool,
    pub(crate) source: Arc<str>,
    /// The code, unless it was loaded before the start and nothing has needed it since.
    compiled: Option<Compiled>,
}

/// The functions and records of a source.
#[derive(Clone, Debug)]
struct Compiled {
    functions: Vec<&'static UserFunction>,
    records: Vec<Record>,
}

/// A record of a module.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) layout: &'static Layout,
}

/// A change that is in progress, or its outcome: the name of the module, none if there is no such module to remove, or why
/// it was refused.
pub(crate) type ChangeInProgress = Arc<OnceLock<Result<Option<String>, String>>>;

impl std::fmt::Debug for Loaded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} modules", self.modules.len())
    }
}

impl FunctionLoader {
    /// Returns a loader without functions.
    pub(crate) fn new() -> FunctionLoader {
        FunctionLoader {
            functions: Functions::leaked(),
            loaded: Mutex::default(),
            in_progress: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// Returns the functions, as requests find them.
    pub(crate) fn functions(&self) -> &'static Functions {
        self.functions
    }

    /// Takes over the functions of a data directory, and compiles those of the current modules.
    pub(crate) fn restore(&self, stored: StoredFunctions, file: FunctionsFile<Files>) -> Result<(), String> {
        let mut loaded = self.loaded();
        loaded.names = stored.names;
        for StoredModule { name, revision, is_current, source } in stored.modules {
            let compiled = if is_current { Some(compile(&source)?.into()) } else { None };
            loaded.modules.push(Module { name, revision, is_current, source: source.into(), compiled });
        }
        loaded.file = Some(file);
        self.publish(&loaded);
        Ok(())
    }

    /// Returns the handle with the function that it names, also one that was replaced before the start. Then its source is
    /// compiled.
    pub(crate) fn resolve(&self, handle: FunctionHandle) -> FunctionHandle {
        let found = self.functions.resolve(handle);
        if found.function.is_some() || handle.revision == 0 {
            return found;
        }
        let mut loaded = self.loaded();
        let module = loaded.modules.iter_mut().find(|module| module.revision == handle.revision);
        let Some(module) = module.filter(|module| module.compiled.is_none()) else { return handle };
        match compile(&module.source) {
            Ok(new) => module.compiled = Some(new.into()),
            Err(error) => tracing::error!("module {} of the log cannot be compiled any more: {error}", module.name),
        }
        self.publish(&loaded);
        self.functions.resolve(handle)
    }

    /// Begins a change in a thread of its own. Returns `None` if too many changes are in progress.
    pub(crate) fn begin(self: &Arc<Self>, change: Change) -> Option<ChangeInProgress> {
        let mut in_progress = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if *in_progress >= FUNCTION_LOADS_MAX {
            return None;
        }
        *in_progress += 1;
        drop(in_progress);
        let (begun, loader) = (ChangeInProgress::default(), Arc::clone(self));
        let outcome = Arc::clone(&begun);
        let work = move || {
            // A fault of the compiler must not let the client wait for ever.
            let made = panic::catch_unwind(AssertUnwindSafe(|| loader.make(&change)));
            // First: who has the reply may begin the next one.
            *loader.in_progress.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            let _ = outcome.set(made.unwrap_or_else(|_| Err("the server has failed: see its log".to_owned())));
        };
        if thread::Builder::new().name("skep-functions".to_owned()).spawn(work).is_err() {
            *self.in_progress.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            let _ = begun.set(Err("the server has no thread for it".to_owned()));
        }
        Some(begun)
    }

    fn make(&self, change: &Change) -> Result<Option<String>, String> {
        match change {
            Change::Load { source, replaces } => self.load(source, *replaces).map(Some),
            Change::Delete { name } => Ok(self.delete(name)?.then(|| name.clone())),
        }
    }

    /// Loads a module. Returns its name.
    pub(crate) fn load(&self, source: &str, replaces: bool) -> Result<String, String> {
        let mut loaded = self.loaded();
        let known = loaded.modules.iter().position(|module| *module.source == *source);
        if let Some(module) = known.map(|index| &mut loaded.modules[index])
            && module.compiled.is_none()
        {
            module.compiled = Some(compile(source)?.into());
        }
        let new = if known.is_none() { Some(compile(source)?) } else { None };
        let old_name = known.map(|index| loaded.modules[index].name.clone());
        let name = old_name.or_else(|| new.as_ref().map(|new| new.name.clone())).expect("it is known or new");
        if known.is_some_and(|index| loaded.modules[index].is_current) {
            return Ok(name);
        }
        if !replaces && loaded.current(&name).is_some() {
            return Err(format!("module '{name}' exists: use LOAD REPLACE to replace its functions"));
        }
        let mut next = loaded.with_current(&name, known);
        if let Some(new) = &new {
            let revision = next.modules.iter().map(|module| module.revision).max().unwrap_or(0) + 1;
            next.add_names(&new.functions);
            let (name, is_current, source) = (name.clone(), true, source.into());
            next.modules.push(Module { name, revision, is_current, source, compiled: None });
        }
        next.check_bounds(new.as_ref().map_or(0, |new| new.functions.len()))?;
        loaded.store(&next)?;
        // Only now: the code of a source that is refused is freed.
        if let Some((new, module)) = new.zip(next.modules.last_mut()) {
            module.compiled = Some(new.into());
        }
        self.replace(&mut loaded, next);
        Ok(name)
    }

    /// Removes a module. Its functions are no longer found. Returns false if there is none of this name.
    fn delete(&self, name: &str) -> Result<bool, String> {
        let mut loaded = self.loaded();
        if loaded.current(name).is_none() {
            return Ok(false);
        }
        let next = loaded.with_current(name, None);
        loaded.store(&next)?;
        self.replace(&mut loaded, next);
        Ok(true)
    }

    /// Returns the current modules, by name.
    pub(crate) fn modules(&self) -> Arc<Vec<ListedModule>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the shards find what is loaded after a change.
    fn replace(&self, loaded: &mut Loaded, mut next: Loaded) {
        next.file = loaded.file.take();
        *loaded = next;
        self.publish(loaded);
    }

    fn publish(&self, loaded: &Loaded) {
        let (table, listed) = (loaded.table(), Arc::new(loaded.listed()));
        self.functions.change(|current| *current = table);
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Module {
    /// Returns the functions, if the module is current.
    pub(crate) fn functions(&self) -> &[&'static UserFunction] {
        self.compiled.as_ref().map_or(&[], |compiled| &compiled.functions)
    }

    /// Returns the records, if the module is current.
    pub(crate) fn records(&self) -> &[Record] {
        self.compiled.as_ref().map_or(&[], |compiled| &compiled.records)
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
        Loaded { names: self.names.clone(), modules, file: None }
    }

    /// Writes what is loaded after a change to the data directory, if there is one.
    fn store(&mut self, next: &Loaded) -> Result<(), String> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write(&next.stored()).map_err(|error| format!("the module cannot be stored: {error}"))
    }

    /// Gives a number to each name that is new.
    fn add_names(&mut self, functions: &[UserFunction]) {
        for function in functions {
            if !self.names.contains(&function.name) {
                self.names.push(function.name.clone());
            }
        }
    }

    /// Returns an error if there are too many functions, with this number of new ones, or sources.
    fn check_bounds(&self, new_count: usize) -> Result<(), String> {
        let current = || self.modules.iter().filter(|module| module.is_current);
        let count: usize = current().map(|module| module.functions().len()).sum();
        if count + new_count > FUNCTIONS_MAX {
            return Err(format!("a server has at most {FUNCTIONS_MAX} functions: delete modules"));
        }
        let size: usize = self.modules.iter().map(|module| module.source.len()).sum();
        if self.modules.len() > FUNCTION_REVISIONS_MAX || size > FUNCTION_SOURCES_MAX {
            return Err(format!(
                "the server keeps each source that it was given, at most {FUNCTION_REVISIONS_MAX} different ones of \
                 {FUNCTION_SOURCES_MAX} bytes together: pass what changes as an operand, not in the source"
            ));
        }
        Ok(())
    }

    fn stored(&self) -> StoredFunctions {
        let stored = |module: &Module| StoredModule {
            name: module.name.clone(),
            revision: module.revision,
            is_current: module.is_current,
            source: module.source.to_string(),
        };
        StoredFunctions { names: self.names.clone(), modules: self.modules.iter().map(stored).collect() }
    }

    fn listed(&self) -> Vec<ListedModule> {
        let current = self.modules.iter().filter(|module| module.is_current);
        let listed = |module: &Module| ListedModule {
            numbers: module.functions().iter().map(|function| self.index(&function.name) as u32 + 1).collect(),
            module: module.clone(),
        };
        let mut modules: Vec<ListedModule> = current.map(listed).collect();
        modules.sort_by(|a, b| a.module.name.cmp(&b.module.name));
        modules
    }

    /// Returns the index of the name of a function.
    fn index(&self, name: &str) -> usize {
        self.names.iter().position(|other| other == name).expect("it got a number")
    }

    fn table(&self) -> FunctionTable {
        let mut table = FunctionTable { newest: vec![None; self.names.len()], ..FunctionTable::default() };
        for module in &self.modules {
            for &function in module.functions() {
                let index = self.index(&function.name);
                let (id, revision) = (index as u32 + 1, module.revision);
                table.revisions.insert(Revision { id, revision }, function);
                if module.is_current {
                    let handle = FunctionHandle { id, revision, function: Some(function) };
                    table.newest[index] = Some(handle);
                    table.names.insert(function.name.clone(), handle);
                }
            }
            let records = module.records().iter().filter(|_| module.is_current);
            table.records.extend(records.map(|record| (record.name.clone(), record.layout)));
        }
        table
    }
}

impl From<skep_function::Module> for Compiled {
    /// From now on, the code lives as long as the process.
    fn from(module: skep_function::Module) -> Compiled {
        let functions = module.functions.into_iter().map(|function| &*Box::leak(Box::new(function))).collect();
        let record = |(name, layout)| Record { name, layout: Box::leak(Box::new(layout)) };
        Compiled { functions, records: module.records.into_iter().map(record).collect() }
    }
}

fn compile(source: &str) -> Result<skep_function::Module, String> {
    skep_function::compile(source).map_err(|error| error.to_string())
}
