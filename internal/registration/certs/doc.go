// Package certs manages the certificates of a webhook server. It creates them,
// stores them in a Secret that all replicas share, renews them, and registers them
// with kube-apiserver.
//
// # The Secret
//
// The Secret contains a CA and a leaf with ECDSA P-256 keys. Its keys have the
// names that cert-manager and Kubernetes use: tls.crt and tls.key are the leaf,
// ca.crt is the bundle with the signing CA first, and ca.key is the key of that CA.
//
// There is no leader. The first replica that finds a certificate missing or due
// for renewal creates it. A write contains the resource version that it replaces,
// so a second replica gets a conflict and uses the certificates of the first.
//
// If the Secret is empty or unusable, a replica writes the certificates that it serves into
// it again. It creates a missing Secret only if it has the permission, which the chart does not
// give. Until somebody creates an empty Secret, replicas continue to serve their
// certificates. Only a replica without certificates makes a new CA. So deleting the Secret
// revokes nothing. To revoke the certificates, stop all replicas first, or put another CA
// and leaf into the Secret.
//
// # Renewal
//
// CA and leaf are renewed after two thirds of their life. The last third remains
// for repairs if a renewal fails. A new leaf of the same CA is served at once. A new
// CA needs several steps, because the bundles of all API servers must verify the
// served leaf at any time:
//
//  1. The new CA is put before the old one in ca.crt. The leaf is still signed by
//     the old CA. The key of the old CA is deleted.
//  2. All webhook configurations get both CAs.
//  3. After Options.Propagation, the new CA signs a new leaf. Each replica serves
//     it when the replica itself has seen the new CA in the bundles for that time.
//  4. The old CA is removed from the bundle when it expires. At that time all its
//     leaves have expired too, because no leaf outlives its CA.
//
// Propagation is necessary because API servers cache the webhook configurations
// with a watch. A broken watch is detected after 40 s (the keepalive of
// k8s.io/apiserver pkg/storage/storagebackend/factory) to 45 s (that of HTTP/2 in
// k8s.io/apimachinery pkg/util/net), so the default is a minute. A replica also
// watches the Secret, and reads it at least once a minute. A replica that has not
// read a new leaf yet serves the old one, which the bundles still verify.
//
// A configuration can have a CA that is not in ca.crt, because the Secret was
// replaced or another program managed the certificates before. This CA stays as
// long as another replica may serve a leaf of it: a minute and twice Propagation.
//
// Certificates are valid from an hour before their creation, for clients whose
// clocks are slow. Where the clock of this machine differs from that of the API server
// by more than ten minutes, dates are those of the API server's answers.
//
// # Path tokens
//
// With Options.PathTokens, the paths in Options.Configurations have a secret
// segment that authenticates callers (internal/registration/pathtoken). The key path-tokens of
// the Secret has one line for each token, with the token and its creation time,
// the newest first. A new token is created if the newest one is older than
// Options.PathTokenLife, or if the key is missing or unusable. So an operator can
// delete the key to get a new token. A new token also needs several steps:
//
//  1. The new token is put first in the Secret. Replicas accept the new and the
//     old token.
//  2. The new token is registered when all replicas accept it. To find out, the
//     Manager sends requests through the Service; for Propagation, each answer must
//     come from a replica that accepts the token. A replica of an older version, or
//     one that cannot reach the API server, does not accept it. While such a
//     replica runs, the old token stays registered.
//  3. When the new token has been registered in all webhooks for twice Propagation,
//     the old one is removed from the Secret. This time is for API servers with an
//     old cache and for calls in flight. Replicas accept the old token for another
//     twice Propagation.
//
// Replicas accept all registered tokens, whoever registered them. They also accept
// calls without a token while a registered webhook has a path without one. So
// registrations of versions without path tokens work until they are replaced. A
// process that starts when all webhooks have a token never accepts calls without
// one. If nothing is registered, the newest token is registered at once.
//
// No certificate is served before the key was read successfully and all
// configurations were read once. Logs, errors and metrics never contain tokens.
//
// # Registration
//
// If kube-apiserver cannot call a registered webhook, requests fail. With an empty
// caBundle, kube-apiserver uses the CAs of its own machine, so requests also fail
// if a configuration is registered before its certificates exist. Therefore the
// Manager first connects to the server through the Service in the configuration:
// at the cluster IP, with the server name and certificates that kube-apiserver will
// use, and without cluster DNS, which kube-apiserver does not use either. Then it
// applies the complete configurations (Options.Configurations). It applies them
// again if they are deleted, or if a new version of the process has other ones.
//
// Only ready pods are endpoints of a Service, so readiness does not wait for the
// registration. Manager.Registered, a metric and an Event report that it is
// missing, and AwaitRegistered waits for it. A chart that installs configurations
// with selectors that match nothing at first is not an alternative: its next
// upgrade would restore these selectors.
//
// Each process applies the configurations once, with server-side apply and the
// field manager "fastadmit". So replicas of two versions do not undo each other's
// rules. If only the bundles change later, all other fields are applied as they
// were read. The owner of the configurations is a ClusterRole (Options.Owner),
// because cluster-scoped objects need a cluster-scoped owner. If an uninstall
// deletes the ClusterRole, the configurations are deleted too.
//
// In configurations that others create, the Manager writes and owns only the field
// caBundle of webhooks that call the server, with the field manager
// "fastadmit-certs". It takes the field from other managers by force, and restores
// it if it is changed. If somebody applies the configuration again without the
// field, the field stays. A disadvantage: with server-side apply, others can no
// longer remove one of several webhooks from the configuration. kube-apiserver
// keeps the caBundle because another manager owns it, and rejects the webhook
// because its other fields are missing. To remove the webhook, use client-side
// apply or delete the configuration. With Options.Configurations, one manager owns
// all fields.
//
// While replicas run, a deleted configuration is created again in moments. To stop
// calls of webhooks, stop the replicas and then delete the configuration.
//
// # Failures
//
// If the API server does not answer, the server keeps its certificates and stays
// ready, but a first start needs the API server. The Manager tries again after half
// a second to ten seconds. It repairs a wrong Secret or bundle at once.
//
// # Why not a library
//
// github.com/open-policy-agent/cert-controller replaces the CA and its bundle in one
// step, uses RSA-2048 keys, writes whole configurations, and depends on
// controller-runtime. The certwatcher of controller-runtime only reads files.
package certs
