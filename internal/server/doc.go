// Package server is the HTTPS server that answers admission reviews.
//
//   - serve.go: from the listeners to the end of the process; server.go: a request
//   - calls.go, call_context.go: a review while plugins work on it, and its deadline
//   - conn_*.go: connections: accepting, TLS handshakes, the table that bounds them
//   - load.go, memory_*.go: what requests, bodies, reviews and connections may take
//   - callers*.go, tls.go: who may call, and the serving certificate
//   - images.go: ImageReviews
//   - ops.go, metrics*.go, log*.go: health, metrics, log
//
// A client is a stranger until it has shown a certificate or got a review answered. What
// strangers send takes no memory and no connection from callers that are known.
package server
