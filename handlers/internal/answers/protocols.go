package answers

// Protocols returns the protocols to negotiate with a backend: HTTP/1.1 alone. kube-apiserver does
// that for webhooks with a Service, because one connection of HTTP/2 would be to one of its Pods.
//
// With HTTP/2, a backend could use more memory and time than its answers need. The client reads up to
// 4 MiB for each call before this package borrows memory for them. And a backend can keep one processor
// busy with frames that belong to no answer: PING, SETTINGS, WINDOW_UPDATE, empty DATA
// (golang.org/x/net/http2 transport.go).
func Protocols() []string { return []string{"http/1.1"} }
