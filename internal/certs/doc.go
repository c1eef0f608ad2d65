// Package certs keeps the certificates of a webhook server that nobody else
// keeps: it makes them, stores them in a Secret that all replicas share, renews
// them, and has kube-apiserver trust them.
//
// # The Secret
//
// A CA and a leaf with ECDSA P-256 keys, under the names that cert-manager and
// Kubernetes use: tls.crt and tls.key are the leaf, ca.crt is the bundle, the CA
// that signs first, and ca.key is that one's key. Whichever replica is first
// makes what is missing or due. There is no leader: a write says which version
// of the Secret it replaces, and who comes second takes what the first one made.
// Deleted or unusable, the Secret is made anew from what the replica serves,
// and only a replica that serves nothing yet makes a new CA. So deleting it
// revokes nothing: for that, end all replicas first, or put a CA and leaf of
// one's own into it.
//
// # Renewal
//
// Both are renewed at two thirds of their life, which leaves a third to get well
// if renewing fails. A new leaf of the same CA is served at once. Whatever is
// served must be trusted by the bundles that API servers use, so a change of the
// CA takes its time:
//
//  1. A new CA comes before the old one in ca.crt. The leaf stays the old one's.
//     The old CA's key is gone from then on.
//  2. All webhook configurations get both.
//  3. After Options.Propagation, a new leaf is signed by the new CA. Each replica
//     serves it once it has seen for itself that the bundles had the new CA for
//     that long.
//  4. The old CA leaves the bundle when it expires. No leaf outlives its CA, so
//     nothing that could be verified with it is left.
//
// Propagation is there because API servers work from a cache: each watches the
// webhook configurations. A watch that is broken is noticed after 40 s (the
// keepalive of k8s.io/apiserver pkg/storage/storagebackend/factory) to 45 s (that
// of HTTP/2 in k8s.io/apimachinery pkg/util/net), hence a minute. A replica
// learns of the Secret by a watch at once and by looking once a minute at the
// latest; a leaf that it does not have yet is never the only one that is
// trusted.
//
// A CA in a configuration that ca.crt does not have, because the Secret was
// replaced or others kept the certificates before, stays for as long as another
// replica may serve a leaf of it: a minute and twice Propagation.
//
// Certificates are valid from an hour before they are made, for clocks that are
// behind.
//
// # Path tokens
//
// With Options.PathTokens, the paths of Options.Configurations have a secret
// segment (internal/pathtoken), by which the server knows its callers. path-tokens
// in the Secret has a token on each line and when it was made, the newest first.
// A new one is made when the newest is older than Options.PathTokenLife, or when
// the key is missing or unusable: removing the key asks for a new token. A change
// takes its time here, too:
//
//  1. A new token comes first in the Secret. Replicas take calls with it and with
//     the old one.
//  2. It is registered when all replicas take it: for Propagation, every request
//     that was sent through the Service was answered by a replica that does. One
//     that runs an older version, or does not reach the API server, does not; as
//     long as it runs, the old token stays registered.
//  3. When all webhooks have been called with the new one for twice Propagation, for
//     API servers that work from a cache and for calls that had begun, the old one
//     leaves the Secret. Replicas take it for twice Propagation more.
//
// What is registered is taken, whoever registered it: also calls without a token,
// as long as a webhook has a path without one. So registrations of versions that
// know no tokens go on working until they can be replaced. A process that begins
// while all webhooks have a token never takes calls without one. If nothing is
// registered, the newest token is registered at once.
//
// Without the key readable and all configurations read once, no certificate is
// served. Logs, errors and metrics show no token.
//
// # Registration
//
// A webhook that kube-apiserver knows and cannot call fails requests. An empty
// caBundle makes it take the CAs of its own machine, so a configuration that is
// there before its certificates is an outage as well. So there is none before
// the server was reached through the very Service that it names, at the cluster
// IP, with the name and the certificates that kube-apiserver will use, and
// without cluster DNS, which kube-apiserver does not use: the Manager applies
// complete configurations (Options.Configurations) then, and again when they
// are gone or a new version of the process brings others. That needs readiness
// first, which makes a pod an endpoint of its Service, so readiness does not
// wait for a registration: Manager.Registered, a metric and an Event say that it
// is missing, and AwaitRegistered waits for it. Not taken: selectors that match nothing at first,
// because whoever owns them, a chart, would put them back.
//
// They are applied with server-side apply as field manager "fastadmit", by each
// process once: replicas of two versions do not undo each other's rules. When
// only the bundles are to be changed later, all else is applied as it was found.
// Their owner is a ClusterRole (Options.Owner), for the owner of what is in no
// namespace must be in none: whoever uninstalls it removes them.
//
// Of configurations that others make, the Manager writes the field caBundle of
// each webhook that calls the server, and owns nothing else, as field manager
// "fastadmit-certs". Webhooks for other servers there are left alone. It
// takes that field by force from others, and comes back when it is changed.
// Applying them again without the field leaves it as it is. There is a price:
// who applies such a configuration by server-side apply can no longer remove one
// of several webhooks from it, for kube-apiserver keeps the part that another
// manager owns and finds the rest missing. Only client-side apply, or deleting
// the configuration, removes it then. With Options.Configurations, one manager
// owns all of it.
//
// A configuration that was deleted is back in moments while replicas run. To
// have no webhook called, end the replicas and then delete it.
//
// # What fails how
//
// Without the API server, what is known goes on being served, and the server
// stays ready; a first start needs it. Attempts come after half a second to ten
// seconds. What is wrong in the Secret or in a bundle is put right at once.
//
// # Why not a library
//
// github.com/open-policy-agent/cert-controller replaces the CA and its bundle at
// once, signs with RSA-2048, writes whole configurations, and comes with
// controller-runtime, whose certwatcher only reads files.
package certs
