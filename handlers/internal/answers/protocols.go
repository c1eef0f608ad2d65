package answers

// Protocols returns the protocols to negotiate with a backend: HTTP/1.1 alone. kube-apiserver does
// that for webhooks with a Service, because one connection of HTTP/2 would be to one of its Pods.
//
// With HTTP/2, a backend takes much more than its answers. What it sends is read from the
// connection before there is memory for it, up to 4 MiB for each call, and it can send frames without
// end that belong to no answer (PING, SETTINGS, WINDOW_UPDATE, empty DATA), which take a
// processor (golang.org/x/net/http2 transport.go).
func Protocols() []string { return []string{"http/1.1"} }
