//! libpcap's compiler, loaded on demand: all other commands work without the library.

#![expect(unsafe_code, reason = "UNSAFETY: calls a C library through pointers that it was asked for")]

use polder_datapath::capture::Instruction;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// File names of the library.
const NAMES: [&CStr; 3] = [c"libpcap.so.1", c"libpcap.so.0.8", c"libpcap.so"];
/// DLT_EN10MB.
const ETHERNET: c_int = 1;
/// PCAP_NETMASK_UNKNOWN.
const NO_MASK: c_uint = c_uint::MAX;

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    length: c_uint,
    instructions: *mut RawInstruction,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawInstruction {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FreeCode = unsafe extern "C" fn(*mut RawProgram);
type Close = unsafe extern "C" fn(*mut c_void);

/// The loaded library.
pub(super) struct Library {
    open_dead: OpenDead,
    compile: Compile,
    get_error: GetError,
    free_code: FreeCode,
    close: Close,
}

impl Library {
    /// Loads the library. Returns the loader's message on failure.
    pub(super) fn load() -> Result<Self, String> {
        let handle = NAMES.iter().find_map(|name| {
            // SAFETY: the name ends with zero; loading libpcap has no harmful side effects.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!handle.is_null()).then_some(handle)
        });
        let Some(handle) = handle else { return Err(last_error()) };
        let open_dead = symbol(handle, c"pcap_open_dead")?;
        let compile = symbol(handle, c"pcap_compile")?;
        let get_error = symbol(handle, c"pcap_geterr")?;
        let free_code = symbol(handle, c"pcap_freecode")?;
        let close = symbol(handle, c"pcap_close")?;
        // SAFETY: these are the types of the functions with these names in pcap/pcap.h, stable since libpcap
        // 1.0; each pointer is not null.
        let open_dead = unsafe { std::mem::transmute::<*mut c_void, OpenDead>(open_dead) };
        // SAFETY: as above.
        let compile = unsafe { std::mem::transmute::<*mut c_void, Compile>(compile) };
        // SAFETY: as above.
        let get_error = unsafe { std::mem::transmute::<*mut c_void, GetError>(get_error) };
        // SAFETY: as above.
        let free_code = unsafe { std::mem::transmute::<*mut c_void, FreeCode>(free_code) };
        // SAFETY: as above.
        let close = unsafe { std::mem::transmute::<*mut c_void, Close>(close) };
        Ok(Self { open_dead, compile, get_error, free_code, close })
    }

    /// Compiles an expression for Ethernet. Returns the library's message on failure.
    pub(super) fn compile(&self, expression: &str, longest: c_int) -> Result<Vec<Instruction>, String> {
        let expression =
            CString::new(expression).map_err(|_| "the expression contains a zero byte".to_owned())?;
        // SAFETY: all numbers are allowed; the handle is closed below.
        let handle = unsafe { (self.open_dead)(ETHERNET, longest) };
        if handle.is_null() {
            return Err("libpcap is out of memory".to_owned());
        }
        let mut program = RawProgram { length: 0, instructions: std::ptr::null_mut() };
        // SAFETY: the handle is this library's and open, the program is writable, the string ends with zero.
        let status = unsafe { (self.compile)(handle, &mut program, expression.as_ptr(), 1, NO_MASK) };
        let compiled = if status == 0 { Ok(copied(&program)) } else { Err(self.error_of(handle)) };
        if status == 0 {
            // SAFETY: the library has created the program; it is freed once, after it was copied.
            unsafe { (self.free_code)(&mut program) };
        }
        // SAFETY: the handle is not used afterwards.
        unsafe { (self.close)(handle) };
        compiled
    }

    fn error_of(&self, handle: *mut c_void) -> String {
        // SAFETY: the handle is this library's and open.
        let text = unsafe { (self.get_error)(handle) };
        // SAFETY: the string ends with zero and lives as long as the handle, which is closed after the copy.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Copies the library's instructions.
fn copied(program: &RawProgram) -> Vec<Instruction> {
    if program.instructions.is_null() {
        return Vec::new();
    }
    // SAFETY: the library has written `length` instructions, and nothing writes them meanwhile.
    let raw = unsafe { std::slice::from_raw_parts(program.instructions, program.length as usize) };
    raw.iter().map(|&RawInstruction { code, yes, no, k }| Instruction { code, yes, no, k }).collect()
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is open, and the name ends with zero.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() { Err(last_error()) } else { Ok(found) }
}

fn last_error() -> String {
    // SAFETY: no argument; the string is copied before this thread calls the loader again.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "libpcap gives no reason".to_owned();
    }
    // SAFETY: not null, and it ends with zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
