package noderestriction

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// decides checks the decision about a request of n1: denied with a message that contains
// want, or allowed if want is empty.
func decides(t *testing.T, chain *admission.Chain, fields, want string) {
	t.Helper()
	if want == "" {
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, body(fields))
	} else if got := message(t, chain, body(fields)); !strings.Contains(got, want) {
		t.Errorf("%s: got %s, want %s", fields, got, want)
	}
}

// TestNodeUpdate has a node change its Node, in the order of the checks.
func TestNodeUpdate(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	f := func(before, after, want string) {
		t.Helper()
		decides(t, chain, `"resource":{"group":"","version":"v1","resource":"nodes"},"name":"n1","operation":"UPDATE",`+
			`"oldObject":{`+before+`},"object":{`+after+`}`, want)
	}
	f(`"spec":{"configSource":{"configMap":{"name":"a"}}}`, `"spec":{"configSource":{"configMap":{"name":"a"}}}`, "")
	f(`"spec":{"configSource":{"configMap":{"name":"a"}}}`, `"spec":{"configSource":{"configMap": {"name":"a"}}}`, "")
	f(`"spec":{"configSource":{"configMap":{"name":"a"}}}`, `"spec":{"configSource":{"configMap":{"name":"b"}}}`,
		"to a new non-nil configSource")
	f(`"spec":{"configSource":{"configMap":{"name":"a"}}}`, `"spec":{}`, "")
	f(`"spec":{"configSource":{"configMap":{"name":"a"}}}`,
		`"spec":{"configSource":{"configMap":{"name":"a"}},"taints":[{"key":"a"}]}`, "modify taints")
	f(`"metadata":{}`, `"metadata":{"ownerReferences":[{"name":"a"}]}`, "modify ownerReferences")

	// A label with two values counts as changed.
	const twice = `"metadata":{"labels":{"k8s.io/a":"x","k8s.io/a":"y"}}`
	f(`"metadata":{"labels":{"k8s.io/a":"x"}}`, twice, "labels: k8s.io/a")
	f(`"metadata":{"labels":{"k8s.io/a":"y"}}`, twice, "labels: k8s.io/a")
	f(twice, `"metadata":{"labels":{"k8s.io/a":"x"}}`, "labels: k8s.io/a")
	f(twice, `"metadata":{"labels":{"k8s.io/a":"y"}}`, "labels: k8s.io/a")
}

// TestLabels has a node create its Node with a label. The labels that it may set are in
// k8s.io/kubelet pkg/apis/well_known_labels.go.
func TestLabels(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	f := func(allowed bool, labels ...string) {
		t.Helper()
		for _, label := range labels {
			want := ""
			if !allowed {
				want = "set the following labels: " + label + `"`
			}
			decides(t, chain, `"resource":{"group":"","version":"v1","resource":"nodes"},"name":"n1","operation":"CREATE",`+
				`"object":{"metadata":{"labels":{"`+label+`":"x"}}}`, want)
		}
	}
	f(true,
		"kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
		"kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"kubelet.kubernetes.io/x", "a.kubelet.kubernetes.io/x", "node.kubernetes.io/x", "a.node.kubernetes.io/x",
		"kubernetes.io", "k8s.io", "x", "example.com/x", "xkubernetes.io/x", "kubernetes.io.example.com/x")
	f(false,
		"kubernetes.io/x", "k8s.io/x", "a.k8s.io/x", "a.kubernetes.io/x", "topology.kubernetes.io/x", "node-restriction.kubernetes.io/x",
		"a.node-restriction.kubernetes.io/x", "kubernetes.io/hostname/x")
}

// TestClaimStatus has a node change a claim. In-tree's message shows the internal type as
// JSON, with the field names of Go.
func TestClaimStatus(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	const claim = `"resource":{"group":"","version":"v1","resource":"persistentvolumeclaims"},"subResource":"status",`
	decides(t, chain, claim+`"operation":"CREATE","object":{}`, `unexpected operation \"CREATE\"`)
	f := func(before, after string, want ...string) {
		t.Helper()
		fields := claim + `"operation":"UPDATE","oldObject":{` + before + `},"object":{` + after + `}`
		if len(want) == 0 {
			decides(t, chain, fields, "")
		}
		for _, part := range want {
			decides(t, chain, fields, strings.ReplaceAll(part, `"`, `\"`))
		}
	}
	f(`"metadata":{"resourceVersion":"1","managedFields":[{"manager":"a"}]}`, `"metadata":{"managedFields":[{"manager":"b"}]}`)
	f(`"status":{"conditions":[{"type":"A"}],"capacity":{"storage":"1"}}`,
		`"status":{"allocatedResources":{"storage":"2"},"allocatedResourceStatuses":{"storage":"x"}}`)
	f(`"spec":{}`, `"spec":{"dataSource":{"apiGroup":"g","kind":"k","name":"n"}}`,
		`"DataSource": {`, `"APIGroup": "g"`, `"Kind": "k"`, `"Name": "n"`, `"DataSource": null`)
	f(`"spec":{}`, `"spec":{"dataSourceRef":{"apiGroup":"g","kind":"k","name":"n","namespace":"s"}}`,
		`"DataSourceRef": {`, `"APIGroup": "g"`, `"Kind": "k"`, `"Name": "n"`, `"Namespace": "s"`, `"DataSourceRef": null`)
	f(`"status":{}`, `"status":{"modifyVolumeStatus":{"targetVolumeAttributesClassName":"gold","status":"Pending"}}`,
		`"ModifyVolumeStatus": {`, `"TargetVolumeAttributesClassName": "gold"`, `"Status": "Pending"`, `"ModifyVolumeStatus": null`)
}

// TestTooLarge has nodes send fields that are too large to be decoded.
func TestTooLarge(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	many := "[" + strings.Repeat("{},", codec.MemoryMax>>10) + "{}]"
	for _, fields := range []string{
		`"resource":{"group":"","version":"v1","resource":"persistentvolumeclaims"},"subResource":"status","operation":"UPDATE",` +
			`"oldObject":{},"object":{"status":{"conditions":` + many + `}}`,
		`"resource":{"group":"","version":"v1","resource":"nodes"},"name":"n1","operation":"UPDATE",` +
			`"oldObject":{"spec":{"taints":` + many + `}},"object":{"spec":{"taints":[null,` + many[1:] + `}}`,
	} {
		if got := message(t, chain, body(fields)); !strings.Contains(got, `"code":413`) {
			t.Errorf("got %.300s, want code 413", got)
		}
	}
}

func TestEviction(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	const eviction = pods + `"subResource":"eviction",`
	decides(t, chain, eviction+`"operation":"CREATE","name":"web","object":{}`, "")
	decides(t, chain, eviction+`"operation":"CREATE","object":{"metadata":{"name":"web"}}`, "")
	decides(t, chain, eviction+`"operation":"CREATE","object":{}`, "could not determine pod from request data")
	decides(t, chain, eviction+`"operation":"UPDATE","name":"web","oldObject":{},"object":{}`, "unexpected operation UPDATE")
}

func TestPodCertificates(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	const certificates = `"resource":{"group":"certificates.k8s.io","version":"v1beta1","resource":"podcertificaterequests"},`
	decides(t, chain, certificates+`"subResource":"status","operation":"CREATE","object":{}`, "unexpected subresource status")
	decides(t, chain, certificates+`"operation":"UPDATE","oldObject":{},"object":{}`, "unexpected operation UPDATE")
	const spec = `"operation":"CREATE","object":{"spec":{"nodeName":"n1","nodeUID":"u1","podName":"web","podUID":"u2",`
	decides(t, chain, certificates+spec+`"serviceAccountName":""}}`,
		`while retrieving service account \"shop/\" named in the PodCertificateRequest: serviceaccount \"\" not found`)

	chain = admissiontest.MustChain(t, Plugin(), "")
	decides(t, chain, certificates+spec+`"serviceAccountName":""}}`,
		`while retrieving node \"n1\" named in the PodCertificateRequest: node \"n1\" not found`)
}
