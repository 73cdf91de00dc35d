//! What is shown of routes and neighbours.
