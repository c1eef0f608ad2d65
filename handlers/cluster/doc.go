// Package cluster is what plugins and selectors may ask about the cluster: the
// objects of the kinds that were declared, and no others.
//
// # Where it comes from
//
// Either from the API server, by list and watch as client-go's informers do it,
// or from YAML and JSON files, or from what is built in, which is what a new
// cluster has. Who asks sees no difference.
//
// The cache of a cluster follows it. It is not ready before each kind was
// listed once. From then on it answers, also when the API server is away, with
// what was known last, and catches up when the API server is back. How old that
// is, is in fastadmit_cluster_state_age_seconds: kube-apiserver sends a bookmark
// a minute to whoever watches, so an age of several minutes says that nothing
// comes any more. A watch that is silent for three minutes is begun anew.
//
// What the cache lacks may have been created just now. Where upstream asks the
// API server then, so does this package, once for all who ask at the same time.
// A failure of that is an error and never "not found".
//
// # What it holds
//
// The fields that a Kind keeps. All else is dropped as it arrives. Objects belong to
// the cache: they are shared and must not be changed, but may be kept.
//
// Define and DefineJSON make kinds, those of the built-in plugins and those of
// others. Two definitions of one resource have a watch and a cache each, so that
// what one plugin keeps means nothing to another. A second watch costs the API
// server little, which serves it from memory; one cache for both would have to keep
// what either of them asks for, and would not know when it may forget it.
//
// An object of DefineJSON is its text, which never changes. Whoever reads it has an
// Object of codec of his own: reading notes where things are, so one Object cannot
// serve two goroutines.
//
// A resource that the API server does not have keeps plugins that watch it from
// being ready, unless its Kind is Optional: then it has no objects. Both are asked
// for again every ten seconds at most, and an Optional kind that goes away has no
// objects from then on.
//
// # What it asks
//
// Who may do what (Access) and which resources there are (Discovery), of the API
// server only. Answers about access are remembered as kube-apiserver remembers
// those of an authorization webhook.
//
// # What it needs
//
// A plugin declares its needs: the kinds that it has watched, and the requests
// that it makes. It cannot do anything else, and Rules makes the RBAC rules of
// them, which are cluster-wide.
//
// # Adding a kind
//
// A call of Define in kinds.go and its place in Kinds. The clients are client-go's
// REST clients with a scheme for each kind. Its typed clients come with all of
// Kubernetes' API: they double the size of the binary and the time that it takes
// to start.
package cluster
