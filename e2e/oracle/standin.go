package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	authorizationapi "k8s.io/kubernetes/pkg/apis/authorization"
	authorizationutil "k8s.io/kubernetes/pkg/registry/authorization/util"

	"github.com/fastadmit/fastadmit/e2e/released"
)

// A standIn is the API server of all worlds that have an authorizer. It answers SubjectAccessReviews as
// the authorizer does, and serves the discovery of Kubernetes' resources. It runs as long as the process.
type standIn struct {
	url    string
	mu     sync.Mutex
	worlds []authorizer.UnconditionalAuthorizer
}

var theStandIn = sync.OnceValue(func() *standIn {
	s := new(standIn)
	s.url = httptest.NewServer(s).URL
	return s
})

// server returns the URL of the stand-in as the API server of a world.
func (s *standIn) server(world authorizer.UnconditionalAuthorizer) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worlds = append(s.worlds, world)
	return fmt.Sprint(s.url, "/", len(s.worlds)-1)
}

// kubeconfig writes a kubeconfig for the stand-in as the API server of a world.
// The caller removes it.
func (s *standIn) kubeconfig(world authorizer.UnconditionalAuthorizer) (file string, err error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.server(world)}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// ServeHTTP implements http.Handler. Paths begin with the number of a world.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	world, err := strconv.Atoi(number)
	var answer any
	switch {
	case err != nil:
	case rest == "apis/authorization.k8s.io/v1/subjectaccessreviews":
		s.mu.Lock()
		who := s.worlds[world]
		s.mu.Unlock()
		answer, err = reviewed(r.Context(), who, r.Body)
	default:
		for _, list := range released.Discovered() {
			if rest == path.Join("apis", list.GroupVersion) || list.GroupVersion == "v1" && rest == "api/v1" {
				answer = list
			}
		}
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case answer == nil:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			panic(err)
		}
	}
}

// reviewed answers as an API server does (k8s.io/kubernetes
// pkg/registry/authorization/subjectaccessreview/rest.go).
func reviewed(ctx context.Context, who authorizer.UnconditionalAuthorizer, body io.Reader) (*authorizationv1.SubjectAccessReview, error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	decoded, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	review := decoded.(*authorizationv1.SubjectAccessReview)
	var spec authorizationapi.SubjectAccessReviewSpec
	if err := legacyscheme.Scheme.Convert(&review.Spec, &spec, nil); err != nil {
		return nil, err
	}
	attributes := authorizationutil.AuthorizationAttributesFrom(spec)
	decision, reason, err := who.Authorize(ctx, attributes)
	review.Kind, review.APIVersion = "SubjectAccessReview", authorizationv1.SchemeGroupVersion.String()
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
		EvaluationError: authorizationutil.BuildEvaluationError(err, attributes),
	}
	return review, nil
}
