//! Steps that tests count, to show that a tenant's objects cost linear work.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One look, which tests count.
pub(crate) fn step<T>(look: impl FnOnce() -> T) -> T {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
    look()
}

/// Looks that something takes.
#[cfg(test)]
pub(crate) fn steps(of: impl FnOnce()) -> usize {
    let before = STEPS.get();
    of();
    STEPS.get() - before
}
