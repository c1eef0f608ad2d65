package audit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A stand is a fake kube-apiserver. Tests change its answers.
type stand struct {
	t      testing.TB
	server *httptest.Server

	mu        sync.Mutex
	documents map[string]string   // bodies of answers, by path
	lists     map[string][]string // objects, by the path of their list
	custom    map[string]bool     // lists whose metadata follows the items
	// fault, if set, may answer a request itself; it reports whether it did. The number
	// is that of the list request, from 1.
	fault    func(n int, w http.ResponseWriter, r *http.Request) bool
	requests int
	written  map[string]string // bodies of writes, by path
	writes   []string          // methods and paths
}

func newStand(t testing.TB) *stand {
	s := &stand{t: t, lists: make(map[string][]string), custom: make(map[string]bool), written: make(map[string]string)}
	s.documents = map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","groups":[{"name":"example.com","versions":[{"version":"v1"},{"version":"v1beta1"}],
			"preferredVersion":{"version":"v1"}}]}`,
		"/api/v1": `{"kind":"APIResourceList","resources":[
			{"name":"namespaces","kind":"Namespace","verbs":["list"]},
			{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list"]},
			{"name":"pods/status","kind":"Pod","namespaced":true,"verbs":["get"]},
			{"name":"bindings","kind":"Binding","namespaced":true,"verbs":["create"]}]}`,
		"/apis/example.com/v1": `{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing","namespaced":true,` +
			`"verbs":["list"]}]}`,
		"/apis/example.com/v1beta1": `{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing","namespaced":true,` +
			`"verbs":["list"]}]}`,
	}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *stand) config() *rest.Config { return &rest.Config{Host: s.server.URL, QPS: -1} }

// ServeHTTP implements http.Handler.
func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
		var body json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		s.written[r.URL.Path] = string(body)
		fmt.Fprint(w, "{}")
		return
	}
	if document, ok := s.documents[r.URL.Path]; ok {
		fmt.Fprint(w, document)
		return
	}
	objects, ok := s.lists[r.URL.Path]
	if !ok {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "")
		return
	}
	s.requests++
	if s.fault != nil && s.fault(s.requests, w, r) {
		return
	}
	s.list(w, r, objects, s.custom[r.URL.Path])
}

// list answers with a page. A continue token is the key of the next object, so that
// objects can be added and removed between pages.
func (s *stand) list(w http.ResponseWriter, r *http.Request, objects []string, custom bool) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		s.t.Errorf("%s: no limit", r.URL)
	}
	from, rest := r.URL.Query().Get("continue"), []string(nil)
	for _, object := range objects {
		if keyOf([]byte(object)) >= from {
			rest = append(rest, object)
		}
	}
	meta := `{"resourceVersion":"1"}`
	if len(rest) > limit {
		meta = fmt.Sprintf(`{"resourceVersion":"1","continue":%q,"remainingItemCount":%d}`, keyOf([]byte(rest[limit])), len(rest)-limit)
		rest = rest[:limit]
	}
	items := strings.Join(rest, ",")
	if custom {
		fmt.Fprintf(w, `{"apiVersion":"example.com/v1","items":[%s],"kind":"ThingList","metadata":%s}`, items, meta)
		return
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[%s]}`, meta, items)
}

// refuse answers with a Status, as kube-apiserver does.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, token string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, ListMeta: metav1.ListMeta{Continue: token},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "the stand says " + string(reason),
	})
}

// pods returns pods in two namespaces, in the order of their keys.
func pods(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(`{"metadata":{"name":"p%04d","namespace":"ns%d","uid":"u%d","resourceVersion":"9",`+
			`"managedFields":[{}],"creationTimestamp":"2026-01-01T00:00:00Z"},`+
			`"spec":{"containers":[{"name":"a","image":"b"}]},"status":{"phase":"Running"}}`, i, i*2/max(n, 1), i))
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(keyOf([]byte(a)), keyOf([]byte(b))) })
	return all
}
