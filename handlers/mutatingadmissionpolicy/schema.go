package mutatingadmissionpolicy

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"go.yaml.in/yaml/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// builtIn is the schema of built-in kinds for merging: that of
// k8s.io/client-go/applyconfigurations. This would add 1,100 packages, because it has a Go
// type for each kind. TestSchema generates the file.
//
//go:embed schema.yaml.gz
var builtIn []byte

// builtInSchemas is the parsed builtIn. Parsing takes tens of milliseconds and some
// megabytes, so it is done when a policy first needs it.
var builtInSchemas = sync.OnceValue(func() *typed.Parser {
	r, err := gzip.NewReader(bytes.NewReader(builtIn))
	if err != nil {
		panic(fmt.Sprintf("schema.yaml.gz: %v", err)) // TestSchema parses the same file
	}
	text, err := io.ReadAll(r)
	parser := new(typed.Parser)
	if err == nil {
		err = yaml.Unmarshal(text, &parser.Schema)
	}
	if err != nil {
		panic(fmt.Sprintf("schema.yaml.gz: %v", err))
	}
	return parser
})

// withoutSchema are kinds of Kubernetes that are requests, such as reviews. kube-apiserver
// does not find their schemas, and fails to merge them.
var withoutSchema = map[codec.GroupVersionKind]bool{
	{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}: true,
	{Group: "autoscaling", Version: "v1", Kind: "Scale"}:                  true,
	{Group: "policy", Version: "v1", Kind: "Eviction"}:                    true,
	{Version: "v1", Kind: "NodeProxyOptions"}:                             true,
	{Version: "v1", Kind: "PodAttachOptions"}:                             true,
	{Version: "v1", Kind: "PodExecOptions"}:                               true,
	{Version: "v1", Kind: "PodPortForwardOptions"}:                        true,
	{Version: "v1", Kind: "PodProxyOptions"}:                              true,
	{Version: "v1", Kind: "ServiceProxyOptions"}:                          true,
}

// typeOf returns the schema of a kind. For custom resources, it is the current one of the
// API server. Without an API server, it is the type that structured-merge-diff deduces from
// a value: it merges maps and replaces lists.
func (p *patch) typeOf() (typed.ParseableType, error) {
	gvk := schema.GroupVersionKind(p.kind)
	noType := fmt.Errorf("no corresponding type for %s", gvk)
	if withoutSchema[p.kind] {
		return typed.ParseableType{}, noType
	}
	if known := builtInSchemas().Type(typeName(p.kind)); known.IsValid() {
		return known, nil
	}
	kind, ok, err := p.schemas.Type(p.ctx, gvk)
	switch _, isUnserved := errors.AsType[schemas.NoVersionError](err); {
	case errors.Is(err, schemas.ErrNone):
		return typed.DeducedParseableType, nil
	case isUnserved:
		return typed.ParseableType{}, &refusal{apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. "+
			"There can be a delay between when CustomResourceDefinitions are created and when they are available.", gvk))}
	case err != nil:
		return typed.ParseableType{}, err
	case !ok:
		return typed.ParseableType{}, noType
	}
	return kind, nil
}

// A refusal denies the request, whatever the failurePolicy: a kind whose schemas the API server does
// not serve, or a patched object that is invalid (upstream's dispatcher.go).
type refusal struct{ error }

// typeName returns the name of a kind in the schema. It need not exist there.
func typeName(kind codec.GroupVersionKind) string {
	group := strings.TrimSuffix(kind.Group, ".k8s.io")
	switch kind.Group {
	case "":
		group = "core"
	case "internal.apiserver.k8s.io":
		group = "apiserverinternal"
	case "flowcontrol.apiserver.k8s.io", "rbac.authorization.k8s.io":
		group, _, _ = strings.Cut(kind.Group, ".")
	}
	return "io.k8s.api." + group + "." + kind.Version + "." + kind.Kind
}

func apiVersionOf(kind codec.GroupVersionKind) string {
	if kind.Group == "" {
		return kind.Version
	}
	return kind.Group + "/" + kind.Version
}
