package patching

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

var (
	podKind        = codec.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deploymentKind = codec.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	serviceKind    = codec.GroupVersionKind{Version: "v1", Kind: "Service"}
	secretKind     = codec.GroupVersionKind{Version: "v1", Kind: "Secret"}
	revisionKind   = codec.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"}
)

// encodedByGo decodes an object into its Go type and encodes it.
func encodedByGo(t *testing.T, kind codec.GroupVersionKind, text string) any {
	t.Helper()
	object, err := scheme.Scheme.New(schema.GroupVersionKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, encoded)
}

func parsed(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// isWithin reports whether a document has only members that another one has too.
func isWithin(got, want any) bool {
	switch got := got.(type) {
	case map[string]any:
		all, ok := want.(map[string]any)
		for name, member := range got {
			other, known := all[name]
			ok = ok && known && isWithin(member, other)
		}
		return ok
	case []any:
		all, ok := want.([]any)
		ok = ok && len(all) == len(got)
		for i := range got {
			ok = ok && isWithin(got[i], all[i])
		}
		return ok
	}
	return reflect.DeepEqual(got, want)
}

// TestEncode compares Encode with the Go types, after changes of values of each form. Encode leaves
// out what the type omits, and keeps the rest.
func TestEncode(t *testing.T) {
	f := func(kind codec.GroupVersionKind, before, after string) {
		t.Helper()
		got, unknown, err := Encode(kind, []byte(before), []byte(after), false)
		if err != nil || len(unknown) > 0 {
			t.Fatalf("%s: got %v and the unknown fields %s", after, err, unknown)
		}
		want := encodedByGo(t, kind, after)
		if !isWithin(parsed(t, got), want) || !reflect.DeepEqual(encodedByGo(t, kind, string(got)), want) {
			t.Errorf("%s:\ngot  %s\nwant %v", after, got, want)
		}
	}
	for _, before := range []string{`{}`, `{"metadata":{},"spec":{"containers":null},"status":{}}`} {
		for _, after := range []string{
			`{}`, `{"kind":"","metadata":null,"spec":null}`,
			`{"metadata":{"annotations":{},"labels":null,"finalizers":[],"generation":0,"creationTimestamp":null,` +
				`"deletionTimestamp":null}}`,
			`{"metadata":{"labels":{"a":null,"b":""},"creationTimestamp":"2024-01-02T03:04:05Z","generation":-0}}`,
			`{"spec":{"initContainers":[],"containers":[],"volumes":null,"nodeName":"","hostNetwork":false}}`,
			`{"spec":{"containers":[{},null,{"name":"a","image":"","resources":{"limits":{"cpu":"1000m","memory":0.5,"x":null}},` +
				`"env":[]}]}}`,
			`{"spec":{"volumes":[{"name":"a","emptyDir":{}},{"emptyDir":null},{"name":"b","emptyDir":{"sizeLimit":"1024Mi"}}]}}`,
			`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":null},"periodSeconds":0}},{"ports":[{"containerPort":0}]}]}}`,
			`{"spec":{"terminationGracePeriodSeconds":0,"automountServiceAccountToken":false,"priority":null,"securityContext":{}}}`,
			`{"spec":{"tolerations":[{"key":"","operator":"Exists"}],"affinity":{"nodeAffinity":{}}},"status":null}`,
			`{"spec":{"overhead":{"cpu":"0"},"nodeSelector":{}},"status":{"conditions":[{"lastProbeTime":null}],"startTime":null}}`,
		} {
			f(podKind, before, after)
		}
	}
	f(deploymentKind, `{"spec":{"selector":null,"template":{"metadata":{}}}}`,
		`{"spec":{"replicas":0,"selector":{"matchLabels":{}},"strategy":{"rollingUpdate":{"maxSurge":null,"maxUnavailable":"25%"}}}}`)
	f(serviceKind, `{}`, `{"spec":{"ports":[{"port":80},{"port":0,"targetPort":"a","nodePort":0}],"selector":{}}}`)
	f(secretKind, `{}`, `{"data":{"a":null,"b":"","c":"YQ=="},"immutable":false,"type":""}`)
	f(revisionKind, `{}`, `{"data":null}`)
	f(revisionKind, `{}`, `{"data":{"a":[],"b":null},"revision":0}`)
}

// TestEncodeDifferences encodes documents that have only the members that differ.
func TestEncodeDifferences(t *testing.T) {
	f := func(nullTimes bool, kind codec.GroupVersionKind, before, after, want string, wantUnknown ...string) {
		t.Helper()
		got, unknown, err := Encode(kind, []byte(before), []byte(after), nullTimes)
		if string(got) != want || err != nil || fmt.Sprint(unknown) != fmt.Sprint(wantUnknown) {
			t.Errorf("%s:\ngot  %s, %s, %v\nwant %s, %s", after, got, unknown, err, want, wantUnknown)
		}
	}
	f(false, podKind, `{"spec":{"nodeName":"a"}}`, `{"spec":{}}`, `{"spec":{}}`)
	f(false, deploymentKind, `{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`, `{"spec":{"replicas":2}}`)

	// What the type writes whatever its value is, and the change removed.
	f(false, deploymentKind, `{"spec":{"selector":{"matchLabels":{"a":"b"}},"paused":true}}`, `{"spec":{}}`, `{"spec":{"selector":null}}`)
	f(false, podKind, `{"spec":{"containers":[{"name":"a"}]}}`, `{"spec":{}}`, `{"spec":{"containers":null}}`)
	f(false, podKind, `{"metadata":{"name":"a"},"spec":{},"status":{"phase":"Running"}}`, `{}`, `{"metadata":{},"spec":{},"status":{}}`)
	f(false, serviceKind, `{"spec":{"type":"ClusterIP"},"status":{"loadBalancer":{}}}`, `{"status":{}}`,
		`{"status":{"loadBalancer":{}},"spec":{}}`)
	f(false, podKind, `{"metadata":{"creationTimestamp":"2024-01-02T03:04:05Z"}}`, `{"metadata":{}}`, `{"metadata":{}}`)
	f(true, podKind, `{"metadata":{"creationTimestamp":"2024-01-02T03:04:05Z"}}`, `{"metadata":{}}`,
		`{"metadata":{"creationTimestamp":null}}`)
	f(false, podKind, `{"status":{"conditions":[]}}`, `{"status":{"conditions":[{"lastProbeTime":null,"type":""}]}}`,
		`{"status":{"conditions":[{"lastProbeTime":null,"type":""}]}}`)

	// Go types encode an unset time as null before Kubernetes v1.34.
	const template = `{"spec":{"template":{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}}}}}`
	f(true, deploymentKind, `{"spec":{"template":{"metadata":{"creationTimestamp":null}}}}`, template, template)
	f(false, deploymentKind, `{"spec":{"template":{"metadata":{"creationTimestamp":null}}}}`, template,
		`{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`)

	// Unknown fields. Those that were there before are of a newer release.
	f(false, podKind, `{}`, `{"nope":1}`, `{"nope":1}`, "nope")
	f(false, deploymentKind, `{"spec":{"template":{"spec":{}}}}`,
		`{"spec":{"nodeSelector":{},"template":{"spec":{"containers":[{"x":1}]}}}}`,
		`{"spec":{"nodeSelector":{},"template":{"spec":{"containers":[{"x":1}]}}}}`,
		"spec.nodeSelector", "spec.template.spec.containers[0].x")
	f(false, podKind, `{"spec":{"containers":[{"name":"a","new":1,"resources":{}}]}}`,
		`{"spec":{"containers":[{"name":"b","resources":{}},{"name":"a","new":2,"resources":{}}]}}`,
		`{"spec":{"containers":[{"name":"b","resources":{}},{"name":"a","new":2,"resources":{}}]}}`)
	f(false, podKind, `{"spec":{"new":{"a":1}}}`, `{"spec":{"new":{"a":2}}}`, `{"spec":{"new":{"a":2}}}`)

	// Values of other types, which kube-apiserver refuses, and other kinds.
	f(false, podKind, `{}`, `{"spec":{"volumes":{},"nodeSelector":[]}}`, `{"spec":{"volumes":{},"nodeSelector":[]}}`)
	f(false, podKind, `{}`, `{"spec":{"nodeName":7,"containers":{},"overhead":{"cpu":"x"},"hostNetwork":[]}}`,
		`{"spec":{"nodeName":7,"containers":{},"overhead":{"cpu":"x"},"hostNetwork":[]}}`)
	for _, wrong := range []string{`"hostNetwork":1`, `"priority":1.5`, `"containers":[{"image":{}}]`, `"nodeName":true`} {
		f(false, podKind, `{}`, `{"nope":1,"spec":{`+wrong+`}}`, `{"nope":1,"spec":{`+wrong+`}}`)
	}
	f(false, secretKind, `{}`, `{"nope":1,"data":{"a":"?"}}`, `{"nope":1,"data":{"a":"?"}}`)
	f(false, podKind, `{}`, `{"nope":1,"metadata":{"deletionTimestamp":"now"}}`, `{"nope":1,"metadata":{"deletionTimestamp":"now"}}`)
	f(false, codec.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pod"}, `{}`, `{"nope":null}`, `{"nope":null}`)

	var fields []string
	for i := range unknownMax + 1 {
		fields = append(fields, fmt.Sprintf(`"f%d":1`, i))
	}
	for n := unknownMax - 1; n <= unknownMax+1; n++ {
		text := "{" + strings.Join(fields[:n], ",") + "}"
		if _, unknown, err := Encode(podKind, []byte("{}"), []byte(text), false); len(unknown) != min(n, unknownMax) || err != nil {
			t.Errorf("%d unknown fields: got %d, %v", n, len(unknown), err)
		}
	}
}
