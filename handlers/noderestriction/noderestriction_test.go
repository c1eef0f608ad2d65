package noderestriction

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// objects returns a node and a pod on it.
func objects() []runtime.Object {
	return []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u2"}, Spec: corev1.PodSpec{NodeName: "n1"}},
	}
}

// chainWith returns a chain whose API server answers access reviews with authorize; if that
// is nil, the API server cannot be asked.
func chainWith(t *testing.T, authorize func(context.Context, *authorizationv1.SubjectAccessReview),
	objects ...runtime.Object) *admission.Chain {
	t.Helper()
	return chainOf(t, Plugin(), authorize, objects...)
}

func chainOf(t *testing.T, plugin admission.Plugin, authorize func(context.Context, *authorizationv1.SubjectAccessReview),
	objects ...runtime.Object) *admission.Chain {
	t.Helper()
	state, err := cluster.New(cluster.Options{Objects: objects, Authorize: authorize, Kinds: cluster.KindsOf(Plugin().Needs...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), Plugin().Needs...); err != nil {
		t.Fatal(err)
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{Plugin().Name: {}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// body returns a review of a request by n1 with these fields.
func body(fields string) []byte {
	return bodyOf(`{"username":"system:node:n1","groups":["system:nodes"]}`, fields)
}

func bodyOf(user, fields string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":%q,"request":{"uid":"1","namespace":"shop","userInfo":%s,%s}}`,
		codec.APIVersionV1, user, fields)
}

// pods is the resource of a request about pods.
const pods = `"resource":{"group":"","version":"v1","resource":"pods"},`

// message returns the message of the denial of a review.
func message(t *testing.T, chain *admission.Chain, body []byte) string {
	t.Helper()
	response, outcome := admissiontest.Respond(t, chain, admission.Mutate, body, nil)
	if outcome != admission.OutcomeDenied {
		t.Fatalf("%s\ngot %s and %s, want it denied", body, outcome, response)
	}
	return string(response)
}

// TestPodStatus has a node change forbidden fields through the status of a Pod on it.
func TestPodStatus(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	f := func(before, after, want string) {
		t.Helper()
		body := body(pods + `"subResource":"status","operation":"UPDATE","name":"web",` +
			`"oldObject":{"spec":{"nodeName":"n1"},` + before + `},"object":{"spec":{"nodeName":"n1"},` + after + `}`)
		if want == "" {
			admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
			admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed,
				bytes.Replace(body, []byte(`"n1"},`+after), []byte(`"n1"},`+before), 1))
		} else if got := message(t, chain, body); !strings.Contains(got, want) {
			t.Errorf("from %s to %s: got %s, want %s", before, after, got, want)
		}
	}
	f(`"status":{"phase":"Pending"}`, `"status":{"phase":"Running"}`, "")
	f(`"metadata":{"labels":{"a":"b"}}`, `"metadata":{"labels":{"a":"c"}}`, "cannot update labels through pod status")
	f(`"status":{"resourceClaimStatuses":[{"name":"a"}]}`, `"status":{"resourceClaimStatuses":[{"name":"b"}]}`,
		"cannot update resource claim statues")
	f(`"status":{"extendedResourceClaimStatus":{"resourceClaimName":"a","requestMappings":[]}}`,
		`"status":{"extendedResourceClaimStatus":{"resourceClaimName":"b","requestMappings":[]}}`,
		"cannot update extended resource claim status")
	f(`"status":{}`, `"status":{"extendedResourceClaimStatus":{"resourceClaimName":"b","requestMappings":[]}}`,
		"cannot update extended resource claim status")
}

func TestIsIn(t *testing.T) {
	for namespace, want := range map[string]bool{
		"kubernetes.io": true, "node.kubernetes.io": true, ".kubernetes.io": true, "xkubernetes.io": false,
		"kubernetes.io.example.com": false,
		"":                          false, "example.": false,
	} {
		if got := isIn(namespace, "kubernetes.io"); got != want {
			t.Errorf("%q: got %v", namespace, got)
		}
	}
}

func TestNodes(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	f := func(want admission.Outcome, user string) {
		t.Helper()
		body := bodyOf(user, pods+`"operation":"CREATE","name":"x","object":{"spec":{}}`)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}
	f(admission.OutcomeDenied, `{"username":"system:node:n1","groups":["system:authenticated","system:nodes"]}`)
	f(admission.OutcomeDenied, `{"username":"system:node:","groups":["system:nodes"]}`)
	f(admission.OutcomeDenied, `{"username":"system\u003anode:n1","groups":["system:node\u0073"]}`)
	f(admission.OutcomeAllowed, `{"username":"system:node:n1","groups":["system:node"]}`)
	f(admission.OutcomeAllowed, `{"username":"system:node:n1","groups":[]}`)
	f(admission.OutcomeAllowed, `{"username":"system:node:n1","groups":null}`)
	f(admission.OutcomeAllowed, `{"username":"system:node:n1","groups":"system:nodes"}`)
	f(admission.OutcomeAllowed, `{"username":"system:node:n1"}`)
	f(admission.OutcomeAllowed, `{"username":"system:nod","groups":["system:nodes"]}`)
	f(admission.OutcomeAllowed, `{"username":"x-system:node:n1","groups":["system:nodes"]}`)
	f(admission.OutcomeAllowed, `{"username":null,"groups":["system:nodes"]}`)
	f(admission.OutcomeAllowed, `{}`)
	f(admission.OutcomeAllowed, `null`)
}

// mirror returns the creation of a mirror pod with these fields in its spec.
func mirror(spec string) []byte {
	return body(pods + `"operation":"CREATE","object":{"metadata":{"name":"static","annotations":{"kubernetes.io/config.mirror":"h"},` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u1","controller":true}]},"spec":{"nodeName":"n1",` +
		spec + `}}`)
}

// TestSince137 has a node change a pod's status, request a certificate of a signer that the pod does not name, and
// a token of an audience that it does not name (plugin/pkg/admission/noderestriction/admission.go of v1.36.3 and v1.37.2).
func TestSince137(t *testing.T) {
	state := append(objects(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u3"},
			Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "db"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u4"}})
	f := func(body []byte, status authorizationv1.SubjectAccessReviewStatus, before137, since137 string) {
		t.Helper()
		for version, want := range map[string]string{"1.36": before137, "1.37": since137} {
			chain := chainOf(t, admissiontest.Emulating(t, Plugin(), version),
				func(_ context.Context, review *authorizationv1.SubjectAccessReview) { review.Status = status }, state...)
			if want == "" {
				admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
			} else if got := message(t, chain, body); !strings.Contains(got, want) {
				t.Errorf("%s in %s: got %s, want %q", body, version, got, want)
			}
		}
	}
	no := authorizationv1.SubjectAccessReviewStatus{}
	broken := authorizationv1.SubjectAccessReviewStatus{EvaluationError: "no role"}
	f(token("vault", boundToWeb), no,
		`audience \"vault\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`,
		`: system:node:n1 is not authorized to request tokens for audience \"vault\"`)
	f(token("vault", boundToWeb), broken,
		`audience \"vault\" not found in pod spec volume, error authorizing system:node:n1 to request tokens for this audience: no role`,
		`: error authorizing system:node:n1 to request tokens for audience \"vault\": no role`)

	certificate := body(`"operation":"CREATE",` +
		`"resource":{"group":"certificates.k8s.io","version":"v1","resource":"podcertificaterequests"},` +
		`"object":{"spec":{"nodeName":"n1","nodeUID":"u1","podName":"db","podUID":"u3","serviceAccountName":"db",` +
		`"serviceAccountUID":"u4","signerName":"example.com/s"}}`)
	f(certificate, no, "", `: pod \"shop/db\" does not mount a podCertificate projected volume for signer \"example.com/s\"`)
	f(certificate, broken, "", `: error authorizing system:node:n1 to request podcertificaterequests for signer \"example.com/s\": no role`)
	f(certificate, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, "", "")

	status := func(statuses string) []byte {
		return body(pods + `"operation":"UPDATE","subResource":"status","oldObject":{"spec":{"nodeName":"n1"}},"object":{"status":` +
			`{"nodeAllocatableResourceClaimStatuses":` + statuses + `}}`)
	}
	f(status(`[{"resourceClaimName":"c"}]`), no, "", "cannot update node allocatable resource claim statuses")
	f(status(`[]`), no, "", "")
}

// TestVersions has a node create mirror pods and change a pod's status. Kubernetes v1.33 has fewer checks than
// later releases (plugin/pkg/admission/noderestriction/admission.go of v1.33.13 and v1.34.4).
func TestVersions(t *testing.T) {
	f := func(body []byte, before134, since134 string) {
		t.Helper()
		for version, want := range map[string]string{"1.33": before134, "1.34": since134, "1.37": since134} {
			chain := admissiontest.MustChain(t, admissiontest.Emulating(t, Plugin(), version), "", objects()...)
			if want == "" {
				admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
			} else if got := message(t, chain, body); !strings.Contains(got, want) {
				t.Errorf("%s in %s: got %s, want %q", body, version, got, want)
			}
		}
	}
	volume := func(source string) []byte { return mirror(`"volumes":[{"name":"v",` + source + `}]`) }
	f(mirror(`"serviceAccountName":"x"`), "reference a service account", "reference serviceaccounts")
	f(volume(`"secret":{"secretName":"x"}`), "reference secrets", "reference secrets")
	f(volume(`"csi":{"driver":"d"}`), "", "reference csidrivers (via CSI volumes)")
	f(volume(`"glusterfs":{"endpoints":"e"}`), "", "reference endpoints (via glusterFS volumes)")
	f(volume(`"ephemeral":{}`), "", "reference persistentvolumeclaims (via ephemeral volumes)")
	f(volume(`"projected":{"sources":[{"serviceAccountToken":{"path":"p"}}]}`), "", "reference serviceaccounts (via projected volumes)")
	f(volume(`"projected":{"sources":[{"podCertificate":{}}]}`), "", "reference podcertificates")
	f(volume(`"projected":{"sources":[{"clusterTrustBundle":{}}]}`), "reference clustertrustbundles", "reference clustertrustbundles")
	f(volume(`"persistentVolumeClaim":{"claimName":"c"}`), "reference persistentvolumeclaims", "reference persistentvolumeclaims")
	f(volume(`"unknown":{}`), "", "unknown volume type")

	claims := `"resourceClaims":[{"name":"c"}]`
	f(mirror(claims), "reference resourceclaims", "reference resourceclaims")
	f(mirror(claims+`,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]`),
		"reference persistentvolumeclaims", "reference resourceclaims")
	f(mirror(`"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}},`+
		`{"name":"w","projected":{"sources":[{"clusterTrustBundle":{}}]}}]`),
		"reference clustertrustbundles", "reference persistentvolumeclaims")

	f(body(pods+`"operation":"UPDATE","subResource":"status","oldObject":{"spec":{"nodeName":"n1"}},"object":{"status":`+
		`{"extendedResourceClaimStatus":{"resourceClaimName":"b","requestMappings":[]}}}`), "",
		"cannot update extended resource claim status")
}

func TestReferences(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	allowed := func(spec string) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, mirror(spec))
	}
	f := func(spec, want string) {
		t.Helper()
		if got := message(t, chain, mirror(spec)); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", spec, got, want)
		}
	}
	allowed(`"containers":[{"name":"c"}]`)
	allowed(`"containers":[null,{"env":[null,{"name":"E","valueFrom":{"secretKeyRef":{"name":""}}}],"envFrom":[{"secretRef":null}]}]`)
	allowed(`"serviceAccountName":"","imagePullSecrets":[{"name":""},{}],"resourceClaims":[]`)
	f(`"serviceAccount":"x"`, "reference serviceaccounts")
	f(`"serviceAccountName":"x"`, "reference serviceaccounts")
	f(`"containers":[{"env":[{"name":"E"},{"valueFrom":{"configMapKeyRef":{"name":"x"}}}]}]`, "reference configmaps")
	f(`"volumes":[{"emptyDir":{}},{"csi":{}}]`, "csidrivers (via CSI volumes)")
	f(`"ephemeralContainers":[{"envFrom":[{"configMapRef":{"name":"x"}}]}]`, "reference configmaps")
	f(`"initContainers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"x"}}}]}]`, "reference secrets")
	f(`"resourceClaims":[{}]`, "reference resourceclaims")

	// References by name are checked before volumes.
	f(`"volumes":[{"configMap":{}},{"secret":{"secretName":"x"}}]`, "reference secrets\"")
	f(`"volumes":[{"csi":{}},{"configMap":{"name":"x"}}]`, "reference configmaps\"")
	f(`"volumes":[{"csi":{}},{"configMap":{}}]`, "csidrivers (via CSI volumes)")
	f(`"resourceClaims":[{}],"volumes":[{"csi":{}}]`, "reference resourceclaims")

	// If a volume has two sources, the local one counts. Secrets are checked before that.
	allowed(`"volumes":[{"emptyDir":{},"configMap":{}}]`)
	allowed(`"volumes":[{"hostPath":{},"azureFile":{},"secret":{"secretName":"x"}}]`)
	f(`"volumes":[{"emptyDir":{},"secret":{"secretName":"x"}}]`, "reference secrets")
	allowed(`"volumes":[{"emptyDir":{},"projected":{"sources":[{"configMap":{}}]},"secret":{"secretName":"x"}}]`)
	allowed(`"volumes":[{"emptyDir":{},"projected":{},"configMap":{"name":"x"}}]`)

	f(`"volumes":[{"name":"v"}]`, `unknown volume type for volume  \"v\"`)
	f(`"volumes":[{"name":"v","emptyDir":null}]`, `unknown volume type for volume  \"v\"`)
	f(`"volumes":[null]`, `unknown volume type for volume  \"\"`)
	f(`"volumes":[{"name":"v","oxygenVolume":{}}]`, `unknown volume type for volume  \"v\"`)
	allowed(`"volumes":[{"projected":{"sources":[{"downwardAPI":{}}]}},{"projected":{}}]`)
	f(`"volumes":[{"name":"v","projected":{"sources":[{"downwardAPI":{}},{}]}}]`, `unknown source for projected volume \"v\"`)
	f(`"volumes":[{"name":"v","projected":{"sources":[null]}}]`, `unknown source for projected volume \"v\"`)
}

// TestUnreadable has unreadable fields: the plugin fails or denies the request.
func TestUnreadable(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	f := func(want admission.Outcome, fields string) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body(fields))
	}
	failed := func(fields string) {
		t.Helper()
		f(admission.OutcomeErrored, fields)
	}
	denied := func(fields string) {
		t.Helper()
		f(admission.OutcomeDenied, fields)
	}

	nodes := `"resource":{"group":"","version":"v1","resource":"nodes"},"name":"n1","operation":"UPDATE",`
	failed(nodes + `"object":{"spec":{"taints":"x"}},"oldObject":{"spec":{}}`)
	failed(nodes + `"object":{"spec":{"configSource":5}},"oldObject":{"spec":{}}`)
	failed(nodes + `"object":{"metadata":{"ownerReferences":{}}},"oldObject":{"spec":{}}`)
	f(admission.OutcomeAllowed,
		nodes+`"object":{"spec":{"taints":[],"configSource":null}},"oldObject":{"spec":{"taints":null,"configSource":{}}}`)
	f(admission.OutcomeAllowed, nodes+`"object":{"metadata":{"labels":{}}},"oldObject":{"metadata":null}`)
	denied(nodes + `"object":{"metadata":{"labels":{"k8s.io/x":"a"}}},"oldObject":{"metadata":{"labels":[]}}`)
	denied(nodes + `"object":{}`)
	denied(nodes + `"object":null,"oldObject":{}`)

	status := pods + `"subResource":"status","operation":"UPDATE","oldObject":{"spec":{"nodeName":"n1"}},`
	failed(status + `"object":{"metadata":{"labels":["x"]}}`)
	failed(status + `"object":{"status":{"resourceClaimStatuses":{"a":1}}}`)
	failed(status + `"object":{"status":{"extendedResourceClaimStatus":[]}}`)
	f(admission.OutcomeAllowed, status+`"object":{"metadata":{"labels":{}},"status":{"resourceClaimStatuses":[]}}`)
	denied(pods + `"subResource":"status","operation":"UPDATE","oldObject":{"spec":"n1"},"object":{}`)

	claims := `"resource":{"group":"","version":"v1","resource":"persistentvolumeclaims"},"subResource":"status","operation":"UPDATE",`
	failed(claims + `"object":{"spec":5},"oldObject":{}`)
	failed(claims + `"object":{},"oldObject":{"metadata":[1]}`)
	f(admission.OutcomeAllowed, claims+`"object":{"spec":{"accessModes":[]}},"oldObject":{"spec":{}}`)

	certificates := `"resource":{"group":"certificates.k8s.io","version":"v1","resource":"certificatesigningrequests"},` +
		`"operation":"CREATE",`
	failed(certificates + `"object":{"spec":{"signerName":"kubernetes.io/kubelet-serving","request":"%"}}`)
	denied(certificates + `"object":{"spec":{"signerName":"kubernetes.io/kubelet-serving"}}`)

	denied(pods + `"operation":"DELETE"`)
	denied(pods + `"subResource":"eviction","operation":"CREATE","object":{}`)
	denied(pods + `"subResource":"eviction","operation":"CREATE","object":{"metadata":{"name":7}}`)
}

// TestAuthorizer checks which access reviews are sent, and the results of the answers.
func TestAuthorizer(t *testing.T) {
	tokenFor := func(audience string) []byte {
		return bodyOf(`{"username":"system:node:n1","uid":"7","groups":["g","system:nodes"],"extra":{"k":["v","w"]}}`,
			`"resource":{"group":"","version":"v1","resource":"serviceaccounts"},"subResource":"token","name":"web","operation":"CREATE",`+
				`"object":{"spec":{"audiences":["`+audience+
				`"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"web","uid":"u2"}}}`)
	}
	token := tokenFor("vault")
	var asked authorizationv1.SubjectAccessReviewSpec
	f := func(want admission.Outcome, text string, status *authorizationv1.SubjectAccessReviewStatus) {
		t.Helper()
		var authorize func(context.Context, *authorizationv1.SubjectAccessReview)
		if status != nil {
			authorize = func(_ context.Context, review *authorizationv1.SubjectAccessReview) {
				asked, review.Status = review.Spec, *status
			}
		}
		chain := chainWith(t, authorize, objects()...)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, token)
		if want == admission.OutcomeDenied {
			if got := message(t, chain, token); !strings.Contains(got, text) {
				t.Errorf("got %s, want %q", got, text)
			}
		}
	}
	f(admission.OutcomeAllowed, "", &authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "matters to nobody"})
	f(admission.OutcomeDenied,
		`system:node:n1 is not authorized to request tokens for audience \"vault\"`,
		&authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "matters to nobody"})
	f(admission.OutcomeDenied, `error authorizing system:node:n1 to request tokens for audience \"vault\": no role`,
		&authorizationv1.SubjectAccessReviewStatus{EvaluationError: "no role"})
	f(admission.OutcomeErrored, "", nil)

	want := authorizationv1.SubjectAccessReviewSpec{
		User: "system:node:n1", UID: "7", Groups: []string{"g", "system:nodes"},
		Extra: map[string]authorizationv1.ExtraValue{"k": {"v", "w"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "shop", Verb: "request-serviceaccounts-token-audience", Version: "v1", Resource: "vault", Name: "web",
		},
	}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}

	// An audience comes from the user. One that is too long to ask about is denied.
	token = tokenFor(strings.Repeat("v", 1<<20))
	f(admission.OutcomeDenied, `audience \"vvvv`, &authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	if !reflect.DeepEqual(asked, want) {
		t.Error("asked about an audience that is too long")
	}
}

// asNode makes a recorded review one of the node n1 about its own objects.
func asNode(t testing.TB, recording string) []byte {
	t.Helper()
	body, err := jsonpatch.MergePatch(corpus.MustRead(recording), []byte(`{"request":{"name":"n1","namespace":"kube-node-lease",`+
		`"userInfo":{"username":"system:node:n1","groups":["system:nodes","system:authenticated"],"extra":null}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", objects()...)
	for _, recording := range []string{"pods-create-v1-1.json", "nodes-status-update-v1-1.json", "leases-update-v1-1.json"} {
		admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, corpus.MustRead(recording))
	}
	// Every kubelet sends these regularly.
	for _, recording := range []string{"nodes-status-update-v1-1.json", "leases-update-v1-1.json"} {
		admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, asNode(t, recording))
	}
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", objects()...)
	f := func(name string, body []byte) {
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomeAllowed, body)
		})
	}
	f("somebody's pod", corpus.MustRead("pods-create-v1-1.json"))
	f("somebody's lease", corpus.MustRead("leases-update-v1-1.json"))
	f("node's lease", asNode(b, "leases-update-v1-1.json"))
	f("node's status", asNode(b, "nodes-status-update-v1-1.json"))
	f("mirror pod", mirror(`"containers":[{"name":"c","env":[{"name":"E","value":"x"}]}],"volumes":[{"name":"v",`+
		`"hostPath":{"path":"/etc"}}]`))
}
