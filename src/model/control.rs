//! The classic control protocol (interop.md 3.2, 3.3): datagrams and the two dialects.
