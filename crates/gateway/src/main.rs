//! The command `polder`.

fn main() -> std::process::ExitCode {
    polder::cli::main()
}
