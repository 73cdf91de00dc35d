//! The part of HTTP/1.1 (RFC 9112) that monitoring needs: one GET or HEAD for each connection.

use httparse::{EMPTY_HEADER, Error, Request, Status};

/// Maximum length of a request's head, in bytes.
pub(super) const MAX_REQUEST: usize = 8 << 10;
/// Maximum number of header fields of a request.
const MAX_FIELDS: usize = 64;

/// Content type of the metrics. Source: OpenMetrics 1.0, "Overall Structure".
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of other answers.
const TEXT: &str = "text/plain; charset=utf-8";

/// Result of parsing a connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The request is incomplete.
    Partial,
    /// A request for a page.
    Asks(Page, Method),
    /// The request is refused.
    Refused(Code),
}

/// Pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The metrics.
    Metrics,
    /// Health: the gateway answers, and its workers make rounds.
    Health,
    /// Readiness: ports are up, and routes are known.
    Ready,
    /// List of the pages.
    Index,
}

/// Supported methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Answer with body.
    Get,
    /// Answer without body.
    Head,
}

/// Status codes (RFC 9110, section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    Unavailable,
}

impl Code {
    fn words(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Parses a client's bytes so far.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(Status::Partial) if bytes.len() < MAX_REQUEST => Parsed::Partial,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => Parsed::Refused(Code::HeadTooLarge),
        Err(_) => Parsed::Refused(Code::BadRequest),
        Ok(Status::Complete(_)) => {
            asked(request.method.unwrap_or_default(), request.path.unwrap_or_default())
        }
    }
}

fn asked(method: &str, target: &str) -> Parsed {
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return Parsed::Refused(Code::MethodNotAllowed),
    };
    match target.split('?').next() {
        Some("/metrics") => Parsed::Asks(Page::Metrics, method),
        Some("/healthz") => Parsed::Asks(Page::Health, method),
        Some("/readyz") => Parsed::Asks(Page::Ready, method),
        Some("/") => Parsed::Asks(Page::Index, method),
        Some(_) | None => Parsed::Refused(Code::NotFound),
    }
}

/// Head of an answer with a body of `length` bytes.
pub(super) fn head(code: Code, kind: &str, length: usize) -> String {
    let allow = if code == Code::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        code.words()
    )
}

/// A short answer with a text body.
pub(super) fn text(code: Code, method: Method, body: &str) -> Vec<u8> {
    let mut answer = head(code, TEXT, body.len()).into_bytes();
    if method == Method::Get {
        answer.extend_from_slice(body.as_bytes());
    }
    answer
}

/// Answer to a refused request.
pub(super) fn refusal(code: Code) -> Vec<u8> {
    text(code, Method::Get, &format!("{}\n", code.words()))
}

/// Text of the list of pages.
pub(super) const INDEX: &str = "Polder: /metrics (OpenMetrics), /healthz, /readyz\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_comes() {
        let request = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(parse(&request[..end]), Parsed::Partial, "{end}");
        }
        assert_eq!(parse(request), Parsed::Asks(Page::Metrics, Method::Get));
        let asked = |line: &str| parse(format!("{line}\r\n\r\n").as_bytes());
        assert_eq!(asked("HEAD /readyz HTTP/1.0"), Parsed::Asks(Page::Ready, Method::Head));
        assert_eq!(asked("GET /healthz HTTP/1.1"), Parsed::Asks(Page::Health, Method::Get));
        assert_eq!(asked("GET / HTTP/1.1"), Parsed::Asks(Page::Index, Method::Get));
    }

    #[test]
    fn another_request_is_refused() {
        let code = |bytes: &[u8]| match parse(bytes) {
            Parsed::Refused(code) => code,
            other @ (Parsed::Partial | Parsed::Asks(..)) => panic!("{other:?}"),
        };
        assert_eq!(code(b"POST /metrics HTTP/1.1\r\n\r\n"), Code::MethodNotAllowed);
        assert_eq!(code(b"GET /etc/passwd HTTP/1.1\r\n\r\n"), Code::NotFound);
        assert_eq!(code(b"\x16\x03\x01\x02\x00"), Code::BadRequest);
        let many = (0..100).map(|number| format!("a{number}: b\r\n")).collect::<String>();
        assert_eq!(code(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()), Code::HeadTooLarge);
        let mut long = b"GET /".to_vec();
        long.resize(MAX_REQUEST, b'a');
        assert_eq!(code(&long), Code::HeadTooLarge);
    }
}
