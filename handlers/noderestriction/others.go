package noderestriction

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

// checkLease allows a kubelet to write the lease of its node, which shows that it is alive.
func checkLease(r *request) error {
	if r.Namespace() != corev1.NamespaceNodeLease {
		return r.forbidden("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if r.nameWritten() != r.node {
		return r.forbidden("can only access node lease with the same name as the requesting node")
	}
	return nil
}

func checkCSINode(r *request) error {
	if r.nameWritten() != r.node {
		return r.forbidden("can only access CSINode with the same name as the requesting node")
	}
	if r.SubResource() == "status" { // since v1.37, with a feature gate that is off by default
		return r.forbidden("CSIVolumeHealth feature gate is disabled")
	}
	return nil
}

// checkResourceSlice lets a kubelet create and delete the slices of its node. The Node
// authorizer restricts all other requests.
func checkResourceSlice(r *request) error {
	verb, slice := "create", &r.Object
	if r.Operation() == codec.Delete {
		verb, slice = "delete", &r.OldObject
	}
	if !slice.Get("spec", "nodeName").EqualString(r.node) {
		return r.forbidden("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// checkCertificate lets a kubelet request certificates only in its own name.
func checkCertificate(r *request) error {
	switch r.Object.Get("spec", "signerName").String() {
	case certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName:
	default:
		return nil
	}
	text, err := base64.StdEncoding.DecodeString(r.Object.Get("spec", "request").String())
	if err != nil {
		return &failureError{fmt.Errorf("cannot read spec.request: %w", err)}
	}
	wanted, err := parseCertificateRequest(text)
	if err != nil {
		return r.forbidden("unable to parse csr: %w", err)
	}
	if wanted.Subject.CommonName != "system:node:"+r.node {
		return r.forbidden("can only create a node CSR with CN=system:node:%s", r.node)
	}
	return nil
}

// parseCertificateRequest parses a request as ParseCSR in k8s.io/kubernetes
// pkg/apis/certificates does.
func parseCertificateRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// checkPodCertificate lets a kubelet request certificates for the pods that it runs. In-tree
// denies all requests while the feature gate PodCertificateRequest is off, but then the API
// server does not serve the resource.
func (p *plugin) checkPodCertificate(ctx context.Context, r *request) error {
	if operation := r.Operation(); operation != codec.Create {
		return r.forbidden("unexpected operation %v", operation)
	}
	if subResource := r.SubResource(); subResource != "" {
		return r.forbidden("unexpected subresource %v", subResource)
	}
	spec := r.Object.Get("spec")
	if err := p.checkNodeOf(r, spec); err != nil {
		return err
	}
	pod, err := p.checkPodOf(r, spec)
	if err != nil {
		return err
	}
	if err := p.checkAccountOf(r, spec); err != nil {
		return err
	}
	if !p.version.AtLeast(1, 37) { // which has the feature gate on by default
		return nil
	}
	return p.checkSigner(ctx, r, spec, pod)
}

// checkSigner allows a certificate of a signer that a volume of the pod names, or for which the
// cluster's authorizer lets the node ask (upstream's validateNodePodCertificateSigner).
func (p *plugin) checkSigner(ctx context.Context, r *request, spec codec.Value, pod *knownPod) error {
	signer := spec.Get("signerName").String()
	if projectsCertificate(pod, signer) {
		return nil
	}
	// RBAC cannot handle resources with slashes.
	status, err := p.review(ctx, r, "request-serviceaccounts-podcertificate-signer", strings.ReplaceAll(signer, "/", ":"),
		spec.Get("serviceAccountName").String())
	switch {
	case err != nil || status.Allowed:
		return err
	case status.EvaluationError != "":
		return r.forbidden("error authorizing %s to request podcertificaterequests for signer %q: %s",
			r.Username(), signer, status.EvaluationError)
	}
	return r.forbidden("pod %q does not mount a podCertificate projected volume for signer %q", r.named(spec, "podName"), signer)
}

func projectsCertificate(pod *knownPod, signer string) bool {
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for _, source := range projected.Sources {
			if source.PodCertificate != nil && source.PodCertificate.SignerName == signer {
				return true
			}
		}
	}
	return false
}

// In the functions below, an undecided error is not a denial: the request may be valid, and
// the cache outdated.

func (p *plugin) checkNodeOf(r *request, spec codec.Value) error {
	name := spec.Get("nodeName").String()
	if name != r.node {
		return r.forbidden("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", name, r.node)
	}
	node, err := p.getNode(name)
	if err != nil {
		return undecided("while retrieving node %q named in the PodCertificateRequest: %v", name, err)
	}
	if uid := spec.Get("nodeUID").String(); uid != string(node.UID) {
		return undecided("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)",
			r.named(spec, "podName"), uid, node.UID)
	}
	return nil
}

func (p *plugin) checkPodOf(r *request, spec codec.Value) (*knownPod, error) {
	name := r.named(spec, "podName")
	pod, err := p.getPod(r.Namespace(), spec.Get("podName").String())
	if err != nil {
		return nil, undecided("while retrieving pod %q named in the PodCertificateRequest: %v", name, err)
	}
	if uid := spec.Get("podUID").String(); uid != string(pod.UID) {
		return nil, undecided("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", name, uid, pod.UID)
	}
	if pod.Spec.NodeName != r.node {
		return nil, r.forbidden("pod %q is not running on node %q named in the PodCertificateRequest", name, r.node)
	}
	if _, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; isMirror {
		return nil, r.forbidden("pod %q is a mirror pod", name)
	}
	if account := spec.Get("serviceAccountName").String(); account != pod.Spec.ServiceAccountName {
		return nil, r.forbidden("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)",
			name, account, pod.Spec.ServiceAccountName)
	}
	return pod, nil
}

func (p *plugin) checkAccountOf(r *request, spec codec.Value) error {
	account, err := lookup(p.accounts, schema.GroupResource{Resource: "serviceaccount"}, r.Namespace(),
		spec.Get("serviceAccountName").String())
	if err != nil {
		return undecided("while retrieving service account %q named in the PodCertificateRequest: %v",
			r.named(spec, "serviceAccountName"), err)
	}
	if uid := spec.Get("serviceAccountUID").String(); uid != string(account.UID) {
		return undecided("PodCertificateRequest for pod %q names service account UID %q, which differs from the running "+
			"service account (%q)",
			r.named(spec, "podName"), uid, account.UID)
	}
	return nil
}

// named returns the name in a field of the spec, with the namespace of the request.
func (r *request) named(spec codec.Value, field string) string {
	return r.Namespace() + "/" + spec.Get(field).String()
}

// undecided returns an error without a status. API servers answer it with code 500, so the
// kubelet tries again.
func undecided(format string, args ...any) error { return fmt.Errorf(format, args...) }
