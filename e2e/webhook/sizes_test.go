package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	// bodyBytesMax is the longest request an API server reads (k8s.io/apiserver
	// pkg/server/config.go MaxRequestBodyBytes).
	bodyBytesMax = 3 << 20
	// storedBytesMax is the largest object that an API server can store: the maximum of its etcd
	// client for one message (go.etcd.io/etcd/client/v3 defaultMaxCallSendMsgSize), less the rest
	// of the message.
	storedBytesMax = 2<<20 - 32<<10
)

// large are objects that can have any size.
type large struct {
	Metadata metav1.ObjectMeta      `json:"metadata"`
	Data     map[string]string      `json:"data"`     // of custom resources
	Template corev1.PodTemplateSpec `json:"template"` // of pod templates
}

func (l *large) value() string {
	if len(l.Template.Spec.Containers) == 1 {
		return l.Template.Spec.Containers[0].Env[0].Value
	}
	return l.Data["k"]
}

// A largeKind describes how to write objects of a kind. META and VALUE are placeholders for the
// variable parts.
type largeKind struct {
	path, manifest string
	escapes        bool // they are stored with escapes, as they are sent
}

// body returns a manifest of that size.
func (k *largeKind) body(meta, fill string, bytes int) (body []byte, value string) {
	before, after, _ := strings.Cut(strings.ReplaceAll(k.manifest, "META", meta), "VALUE")
	left := bytes - len(before) - len(after)
	value = strings.Repeat(fill, left/len(fill))
	return []byte(before + value + after + strings.Repeat(" ", left%len(fill))), value
}

// sizes sends objects from 1 KiB to the largest that an API server accepts.
func (s *stand) sizes(t *testing.T) {
	namespace := s.namespace(t, "sizes")
	s.define(t, "sizes")
	mutating, validating := s.hook("/mutate/Echo"), s.hook("/validate/Echo")
	mutating.Timeout = 30 // seconds
	mutating.Rules = append(cluster.Rules("*", "", "v1", "podtemplates"), cluster.Rules("*", "e2e.example.com", "v1", "sizes")...)
	validating.Timeout, validating.Rules = mutating.Timeout, mutating.Rules
	s.mutating(t, mutating)
	s.validating(t, validating)
	for name, kind := range map[string]largeKind{
		"custom": {path: "/apis/e2e.example.com/v1/namespaces/" + namespace + "/sizes", escapes: true,
			manifest: `{"apiVersion":"e2e.example.com/v1","kind":"Sizes","metadata":{META},"data":{"k":"VALUE"}}`},
		"built-in": {path: "/api/v1/namespaces/" + namespace + "/podtemplates",
			manifest: `{"apiVersion":"v1","kind":"PodTemplate","metadata":{META},"template":{"spec":{"containers":[` +
				`{"name":"c","image":"i","env":[{"name":"K","value":"VALUE"}]}]}}}`},
	} {
		// The last one is six times as long in a review.
		for about, fill := range map[string]string{"plain": "x", "not-ascii": "é", "escaped": "<"} {
			t.Run(name+"-"+about, func(t *testing.T) {
				(&sizes{s, t, kind, about, fill}).all()
			})
		}
	}
}

type sizes struct {
	*stand
	t    *testing.T
	kind largeKind
	// name is the name of the objects, and fill is their content.
	name, fill string
}

func (z *sizes) all() {
	largest := storedBytesMax
	if z.kind.escapes && z.fill == "<" {
		largest /= len(`\u003c`)
	}
	for _, bytes := range []int{1 << 10, 64 << 10, largest} {
		z.name = fmt.Sprintf("%s-%d", z.name, bytes)
		z.write(http.MethodPost, bytes, false)
		z.write(http.MethodPut, bytes, false)
	}
	// Dry runs are not stored. The stored object is the largest one.
	before := z.fastadmit.Metric(z.t, "fastadmit_request_bytes_total")
	z.write(http.MethodPut, bodyBytesMax, true)
	z.t.Logf("two reviews of %d bytes in all", z.fastadmit.Metric(z.t, "fastadmit_request_bytes_total")-before)
	z.name += "-new"
	z.write(http.MethodPost, bodyBytesMax, true)

	before = z.fastadmit.Metric(z.t, "fastadmit_request_bytes_total")
	body, _ := z.kind.body(`"name":"too-large"`, z.fill, bodyBytesMax+1)
	if _, err := z.send(http.MethodPost, "", body, true); !apierrors.IsRequestEntityTooLargeError(err) {
		z.t.Errorf("%d bytes: got %v, want them to be too many", len(body), err)
	}
	if asked := z.fastadmit.Metric(z.t, "fastadmit_request_bytes_total") - before; asked != 0 {
		z.t.Errorf("%d bytes: a webhook got %d bytes, want none", len(body), asked)
	}
}

// write writes an object of that size and checks what is stored.
func (z *sizes) write(method string, bytes int, dryRun bool) {
	z.t.Helper()
	meta, name, operation := fmt.Sprintf(`"name":%q`, z.name), "", "CREATE"
	if method == http.MethodPut {
		name, operation = "/"+z.name, "UPDATE"
		meta += fmt.Sprintf(`,"resourceVersion":%q`, z.read().Metadata.ResourceVersion)
	}
	body, value := z.kind.body(meta, z.fill, bytes)
	got, err := z.send(method, name, body, dryRun)
	if err == nil && !dryRun {
		got = z.read()
	}
	if err != nil || got.Metadata.Annotations[echoed] != operation || got.value() != value {
		z.t.Errorf("%s of %d bytes: got %v, annotations %v and a value of %d bytes, want %d",
			method, bytes, err, got.Metadata.Annotations, len(got.value()), len(value))
	}
}

func (z *sizes) send(method, name string, body []byte, dryRun bool) (large, error) {
	request := z.Client.CoreV1().RESTClient().Verb(method).AbsPath(z.kind.path+name).
		SetHeader("Content-Type", "application/json").Body(body)
	if dryRun {
		request.Param("dryRun", metav1.DryRunAll)
	}
	return decode(request.DoRaw(context.Background()))
}

func (z *sizes) read() large {
	z.t.Helper()
	got, err := decode(z.Client.CoreV1().RESTClient().Get().AbsPath(z.kind.path + "/" + z.name).DoRaw(context.Background()))
	if err != nil {
		z.t.Fatal(err)
	}
	return got
}

func decode(content []byte, err error) (large, error) {
	var l large
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(content, &l)
}
