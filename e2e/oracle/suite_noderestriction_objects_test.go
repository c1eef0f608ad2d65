package oracle_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
)

// kubeletNode writes a Node, with changes of fields that affect scheduling.
func (g *generator) kubeletNode() *oracle.Case {
	kind, nodes := corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithResource("nodes")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: g.nodeLabels()}}
	change := func() {
		if g.in(4) {
			node.Spec.Taints = some(g, 2, func() corev1.Taint {
				return corev1.Taint{Key: pick(g, "a", "b"), Effect: corev1.TaintEffectNoExecute,
					TimeAdded: pick(g, nil, new(metav1.Unix(1_700_000_000, 0)))}
			})
		}
		if g.in(4) {
			node.OwnerReferences = some(g, 2, func() metav1.OwnerReference {
				return metav1.OwnerReference{Name: pick(g, "a", "b"), Controller: pick(g, nil, new(true), new(false))}
			})
		}
		if g.in(6) {
			node.Spec.ConfigSource = pick( //nolint:staticcheck // the plugin reads the deprecated field
				g, nil, &corev1.NodeConfigSource{},
				&corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Name: pick(g, "a", "b")}})
		}
	}
	change()
	if g.in(8) {
		c := g.request(admission.Delete, kind, nodes)
		c.OldObject, c.Name = node, g.someNode()
		c.OldObject.GetObjectKind().SetGroupVersionKind(kind)
		return c
	}
	c := g.request(g.writes(), kind, nodes)
	if g.in(3) {
		c.Subresource = "status"
	}
	g.write(c, node.DeepCopy(), func() runtime.Object {
		change()
		if g.in(2) {
			node.Labels = g.nodeLabels()
		}
		return node
	})
	if c.Name = "n1"; g.in(12) {
		c.Name = g.someNode()
	}
	return c
}

func (g *generator) nodeLabels() map[string]string {
	labels := make(map[string]string)
	for range g.IntN(3) {
		label := pick(g, "app", "example.com/x", "kubernetes.io/os", "kubernetes.io/hostname", "kubernetes.io/role", "k8s.io/x",
			"xk8s.io/x", "a.k8s.io/x",
			"node-restriction.kubernetes.io/x", "a.node-restriction.kubernetes.io/x", "xnode-restriction.kubernetes.io/x",
			"node.kubernetes.io/x", "a.node.kubernetes.io/x", "kubelet.kubernetes.io/x", "a.kubelet.kubernetes.io/x",
			"node-role.kubernetes.io/master",
			"topology.kubernetes.io/zone", "topology.kubernetes.io/x", "failure-domain.beta.kubernetes.io/zone", "beta.kubernetes.io/arch",
			"beta.kubernetes.io/x", "node.kubernetes.io/instance-type", "kubernetes.io", "kubernetes.io/a/b", "/x", `k8s.io/"\`)
		labels[label] = pick(g, "", "a", "b")
	}
	return labels
}

// claimStatus writes the status of a claim, with changes in all fields of the claim.
func (g *generator) claimStatus() *oracle.Case {
	c := g.request(g.writes(), corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), claims)
	if !g.in(12) {
		c.Operation, c.Subresource, c.Options = admission.Update, "status", &metav1.UpdateOptions{}
	}
	claim := g.storedClaim()
	return g.write(c, claim, func() runtime.Object {
		if g.in(8) {
			return g.storedClaim()
		}
		old := claim.DeepCopy()
		changes := []func(){
			func() { old.ResourceVersion = pick(g, "1", "2", "") },
			func() { old.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}} },
			func() { old.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("3Gi")} },
			func() { old.Status.AllocatedResources = corev1.ResourceList{"storage": resource.MustParse("3Gi")} },
			func() {
				old.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
					"storage": corev1.PersistentVolumeClaimNodeResizePending}
			},
			func() { old.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Resizing"}} },
			func() { old.Status.Phase = pick(g, corev1.ClaimBound, corev1.ClaimPending) },
			func() { old.Status.AccessModes = []corev1.PersistentVolumeAccessMode{"a"} },
			func() { old.Status.CurrentVolumeAttributesClassName = new("gold") },
			func() { old.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: "Pending"} },
			func() { old.Spec.VolumeName = "other" },
			func() { old.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1024Mi")} },
			func() { old.Spec.Resources.Limits = corev1.ResourceList{"storage": resource.MustParse("7Gi")} },
			func() { old.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "K", Name: "<&>"} },
			func() {
				old.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "K", APIGroup: new("g"), Namespace: new("n")}
			},
			func() { old.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}} },
			func() { old.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) },
			func() { old.Spec.StorageClassName, old.Spec.VolumeAttributesClassName = new("a"), new("b") },
			func() { old.Labels = map[string]string{"a": "b"} },
			func() { old.CreationTimestamp = metav1.Unix(1_700_000_000, 0) },
			func() { old.Finalizers = some(g, 2, g.finalizer) },
		}
		for range g.IntN(3) {
			pick(g, changes...)()
		}
		return old
	})
}

// storedClaim returns a claim without empty lists. The JSON for webhooks does not
// distinguish them from missing ones, but messages do.
func (g *generator) storedClaim() *corev1.PersistentVolumeClaim {
	claim := g.claim()
	text, err := json.Marshal(claim)
	if err != nil {
		panic(err)
	}
	stored := new(corev1.PersistentVolumeClaim)
	if err := json.Unmarshal(text, stored); err != nil {
		panic(err)
	}
	return stored
}

// podCertificate requests a certificate, perhaps for a pod of the node.
func (g *generator) podCertificate() *oracle.Case {
	w := at("certificates.k8s.io/v1 PodCertificateRequest podcertificaterequests", func() runtime.Object {
		uid := func() types.UID { return pick(g, "u1", "u1", "u1", "u1", g.uid()) }
		return &certificatesv1.PodCertificateRequest{ObjectMeta: g.metadata(), Spec: certificatesv1.PodCertificateRequestSpec{
			NodeName: types.NodeName(g.someNode()), NodeUID: uid(), PodName: g.objectName(), PodUID: uid(),
			ServiceAccountName: pick(g, "a", "a", g.objectName()), ServiceAccountUID: uid(),
			SignerName: pick(g, "example.com/s", "example.com/s", "example.com/t", ""),
		}}
	})
	c := g.request(pick(g, admission.Create, admission.Create, admission.Create, admission.Create, admission.Update), w.kind, w.resource)
	if g.in(16) {
		c.Subresource = "status"
	}
	return g.write(c, w.object(), w.object)
}

// certificateRequests are the texts of requests for certificates.
var certificateRequests = sync.OnceValue(func() [][]byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // constant
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	requests := [][]byte{nil, []byte("text"), encode("CERTIFICATE REQUEST", []byte("no DER"))}
	for _, name := range []string{"system:node:n1", "system:node:n2", "system:node:", "joe"} {
		der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
		if err != nil {
			panic(err)
		}
		requests = append(requests, encode("CERTIFICATE REQUEST", der), encode("CERTIFICATE", der))
	}
	return requests
})

func (g *generator) kubeletCertificate() *oracle.Case {
	w := at("certificates.k8s.io/v1 CertificateSigningRequest certificatesigningrequests", func() runtime.Object {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: g.metadata(), Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: pick(g, certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
				certificatesv1.KubeAPIServerClientSignerName, ""),
			Request: pick(g, certificateRequests()...),
		}}
	})
	c := g.request(pick(g, admission.Create, admission.Create, admission.Update), w.kind, w.resource)
	return g.write(c, w.object(), w.object)
}
