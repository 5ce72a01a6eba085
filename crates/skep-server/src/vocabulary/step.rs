//! Why a step of an isolated command has ended before its command.

/// The reason why a step has ended before its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The stores have deferred all that is left: nothing else is executed until the next step.
    Wait,
    /// The operations of a turn are used up: nothing else is executed until the next step.
    More,
    /// The command is run in parts: other operations may be executed before the next one.
    Pause,
    /// It takes more effort than the commands that may begin now. Nothing was executed.
    Later,
    /// There is no memory for its replies. Nothing was executed, and it begins anew when they are permitted.
    Room,
}
