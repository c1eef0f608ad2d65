// Package clusterapi tests the adapter with webhooks of another project: those of Cluster API's
// kubeadm providers (sigs.k8s.io/cluster-api), set up as the providers set them up.
package clusterapi
