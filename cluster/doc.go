// Package cluster gives plugins and selectors access to objects of the cluster. A
// plugin can read only the kinds that it has declared.
//
// # Sources
//
// Objects come from the API server (list and watch, as with client-go's informers),
// from YAML and JSON files, or from an embedded new cluster. Plugins see no difference.
//
// The cache is ready when each watched kind has been listed once. From then on it
// always answers. While the API server is down, it answers with the last known objects;
// afterwards it catches up. The metric fastadmit_cluster_state_age_seconds shows the
// time since the last event. kube-apiserver sends a bookmark to each watch every
// minute, so an age of several minutes means that the watch has stopped working. A
// watch without an event for three minutes is restarted.
//
// An object that is not cached may have been created a moment ago. Plugins that ask the
// API server in-tree do so here as well; concurrent reviews share the request. If the
// request fails, the result is an error, never "not found".
//
// # The cache
//
// The cache keeps the fields that the Kind names, and drops all others when an object
// arrives. Objects are shared: they must not be changed, but may be kept.
//
// Define and DefineJSON define kinds, for the built-in plugins and for yours. Each
// definition has its own watch and cache, even of the same resource, so plugins do not
// depend on the fields that other plugins keep. The API server serves a second watch
// from memory, at little cost.
//
// An object of DefineJSON is an immutable text. Each reader needs its own codec.Object,
// because reading stores positions in it.
//
// If the API server does not have a resource, plugins that watch it are not ready,
// unless the Kind is Optional: it then has no objects. In both cases the package asks
// again, at most every ten seconds. If the API server stops serving an Optional kind,
// the kind has no objects from then on.
//
// # Permissions and discovery
//
// Access checks permissions, and Discovery looks up resources and their schemas. Both
// need an API server. Access caches answers like kube-apiserver those of an
// authorization webhook.
//
// # Needs
//
// A plugin declares its needs: the kinds that it watches, and the requests that it
// sends. Other requests are refused. Rules derives the RBAC rules, which are
// cluster-wide, from the needs.
//
// # Adding a kind
//
// Call Define in kinds.go and add the kind to Kinds. The clients are client-go's REST
// clients, with a scheme for each kind. client-go's typed clients link all of
// Kubernetes' API, which doubles the size of the binary and its start time.
package cluster
