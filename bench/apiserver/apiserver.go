// Package apiserver is a small API server, from which the server that the commands below bench measure reads its cluster.
package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/yaml"
)

// gone is the status of a request or watch whose version is too old.
const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`

// A resource is a kind that the API server serves.
type resource struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
	version    string // apiVersion
}

// served are the kinds that plugins read and the server serves. It answers 404 for others, as
// kube-apiserver does without their feature gates.
var served = []resource{
	{"namespaces", "Namespace", false, "v1"},
	{"nodes", "Node", false, "v1"},
	{"pods", "Pod", true, "v1"},
	{"services", "Service", true, "v1"},
	{"configmaps", "ConfigMap", true, "v1"},
	{"serviceaccounts", "ServiceAccount", true, "v1"},
	{"limitranges", "LimitRange", true, "v1"},
	{"resourcequotas", "ResourceQuota", true, "v1"},
	{"persistentvolumes", "PersistentVolume", false, "v1"},
	{"persistentvolumeclaims", "PersistentVolumeClaim", true, "v1"},
	{"storageclasses", "StorageClass", false, "storage.k8s.io/v1"},
	{"csidrivers", "CSIDriver", false, "storage.k8s.io/v1"},
	{"ingressclasses", "IngressClass", false, "networking.k8s.io/v1"},
	{"priorityclasses", "PriorityClass", false, "scheduling.k8s.io/v1"},
	{"runtimeclasses", "RuntimeClass", false, "node.k8s.io/v1"},
	{"customresourcedefinitions", "CustomResourceDefinition", false, "apiextensions.k8s.io/v1"},
	{"validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, PolicyVersion},
	{"validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false, PolicyVersion},
	{"policyreplicas", "PolicyReplica", false, PolicyVersion},
	{"validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false, WebhookVersion},
}

// The versions of fastadmit's custom resources.
const (
	PolicyVersion  = "policies.fastadmit.io/v1"
	WebhookVersion = "webhooks.fastadmit.io/v1"
)

// path is the path of lists of all namespaces.
func (r resource) path() string {
	if strings.Contains(r.version, "/") {
		return "/apis/" + r.version + "/" + r.Name
	}
	return "/api/" + r.version + "/" + r.Name
}

// A Server answers discovery, GET, lists and watches in JSON for the objects of a cluster. Its
// objects are bytes, because what it serves is larger than what it should keep as values.
type Server struct {
	*httptest.Server
	// Requests are how many there were.
	Requests atomic.Int64

	mu      sync.Mutex
	objects map[string][]Object // by the path of lists
	watches map[chan event]string
	expired bool // all watches are answered with 410
}

// An Object is in a namespace, or in none.
type Object struct {
	Namespace, Name string
	Content         []byte // JSON
}

// An event writes itself to a watch. last ends the watch.
type event struct {
	write func(w io.Writer) error
	last  bool
}

// Start starts a server with the objects of YAML documents. Call Close in the end.
func Start(documents ...[]byte) (*Server, error) {
	a := &Server{objects: make(map[string][]Object), watches: make(map[chan event]string)}
	for _, document := range documents {
		for _, text := range bytes.Split(document, []byte("\n---\n")) {
			if err := a.read(text); err != nil {
				return nil, err
			}
		}
	}
	a.Server = httptest.NewServer(a)
	return a, nil
}

// read adds the object in a YAML document, if there is one.
func (a *Server) read(document []byte) error {
	content, err := yaml.YAMLToJSON(document)
	if err != nil {
		return err
	}
	var object struct {
		APIVersion, Kind string
		Metadata         struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(content, &object); err != nil {
		return err
	}
	if object.Kind == "" {
		return nil // comments only
	}
	for _, r := range served {
		if r.version == object.APIVersion && r.Kind == object.Kind {
			a.Add(r.path(), Object{object.Metadata.Namespace, object.Metadata.Name, content})
			return nil
		}
	}
	return fmt.Errorf("got kind %q of apiVersion %q, want one that the API server serves", object.Kind, object.APIVersion)
}

// Add adds objects below the path of lists of all namespaces.
func (a *Server) Add(path string, objects ...Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[path] = append(a.objects[path], objects...)
}

// Publish has all watches of a path write something.
func (a *Server) Publish(path string, write func(w io.Writer) error) {
	a.publish(path, event{write: write})
}

// publish sends an event to all watches of a path, or to all watches if the path is empty.
func (a *Server) publish(path string, e event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for watch, of := range a.watches {
		if path != "" && path != of {
			continue
		}
		select {
		case watch <- e:
		default: // it has one already
		}
	}
}

// Expire answers all watches with 410, those that exist and new ones, until Expire is called
// with false.
func (a *Server) Expire(expired bool) {
	a.mu.Lock()
	a.expired = expired
	a.mu.Unlock()
	if expired {
		a.publish("", event{last: true, write: writeGone})
	}
}

func writeGone(w io.Writer) error {
	_, err := fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", gone)
	return err
}

// ServeHTTP implements http.Handler.
func (a *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.Requests.Add(1)
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		a.write(w, r)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	root := 2 // parts before the resource
	if parts[0] == "apis" {
		root = 3
	}
	if len(parts) <= root {
		discover(w, strings.Join(parts[1:], "/"))
		return
	}
	namespace, name, rest := "", "", parts[root:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		namespace, rest = rest[1], rest[2:]
	}
	if len(rest) > 1 {
		name = rest[1]
	}
	path := "/" + strings.Join(append(parts[:root:root], rest[0]), "/")
	for _, known := range served {
		switch {
		case known.path() != path:
			continue
		case r.URL.Query().Get("watch") != "":
			a.watch(r.Context(), w, path, r.URL.Query().Get("sendInitialEvents") == "true")
		case name != "":
			a.get(w, path, namespace, name)
		default:
			a.list(w, known, namespace)
		}
		return
	}
	fail(w, http.StatusNotFound, "NotFound")
}

// discover answers with the resources of a version, or with the versions of a group.
func discover(w http.ResponseWriter, version string) {
	list := []resource{}
	for _, r := range served {
		if r.version == version {
			list = append(list, r)
		}
		if r.version == version+"/v1" { // the path of a group
			fmt.Fprintf(w, `{"kind":"APIGroup","apiVersion":"v1","name":%q,"versions":[{"groupVersion":%q,"version":"v1"}]}`, version,
				r.version)
			return
		}
	}
	if len(list) == 0 {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	content, _ := json.Marshal(list) // strings only
	fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":%s}`, version, content)
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

// write answers a write. What would be stored is only returned: the load is the same all the time.
func (a *Server) write(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
		fail(w, http.StatusForbidden, "Forbidden") // as with files, rights are unknown
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, _ = w.Write(body)
}

func (a *Server) find(path string) []Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[path]
}

func (a *Server) get(w http.ResponseWriter, path, namespace, name string) {
	for _, object := range a.find(path) {
		if object.Namespace == namespace && object.Name == name {
			_, _ = w.Write(object.Content)
			return
		}
	}
	fail(w, http.StatusNotFound, "NotFound")
}

func (a *Server) list(w io.Writer, r resource, namespace string) {
	fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"10"},"items":[`, r.Kind, r.version)
	separator := ""
	for _, object := range a.find(r.path()) {
		if namespace == "" || object.Namespace == namespace {
			_, _ = io.WriteString(w, separator)
			_, _ = w.Write(object.Content)
			separator = ","
		}
	}
	_, _ = io.WriteString(w, "]}")
}

// watch sends what is published until the client leaves.
func (a *Server) watch(ctx context.Context, w http.ResponseWriter, path string, initial bool) {
	if initial { // as an API server without watch lists
		fail(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	watch := make(chan event, 1)
	a.mu.Lock()
	expired := a.expired
	a.watches[watch] = path
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watches, watch)
	}()
	if expired {
		_ = writeGone(w)
		return
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-watch:
			if err := e.write(w); err != nil || e.last {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// Kubeconfig returns a kubeconfig for the server at a URL.
func Kubeconfig(url string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- {name: server, cluster: {server: %q}}
users:
- {name: server, user: {}}
contexts:
- {name: server, context: {cluster: server, user: server}}
current-context: server
`, url)
}
