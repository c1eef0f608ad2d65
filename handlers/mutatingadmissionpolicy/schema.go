package mutatingadmissionpolicy

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"

	"go.yaml.in/yaml/v2"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fastadmit/fastadmit/codec"
)

// builtIn is the schema of Kubernetes' own kinds for merging: what
// k8s.io/client-go/applyconfigurations has, which is 1,100 packages large because it
// comes with a Go type for each. TestSchema makes it anew.
//
//go:embed schema.yaml.gz
var builtIn []byte

// schemas is builtIn, parsed. That takes some tens of milliseconds and some megabytes,
// so it is done when a policy needs it.
var schemas = sync.OnceValue(func() *typed.Parser {
	r, err := gzip.NewReader(bytes.NewReader(builtIn))
	if err != nil {
		panic(fmt.Sprintf("schema.yaml.gz: %v", err)) // TestSchema reads it
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

// withoutSchema are kinds of Kubernetes that are requests for something. kube-apiserver
// looks for their schemas where its API has none, and fails to merge them.
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

// typeOf returns the schema of a kind. One that is not known has that which
// structured-merge-diff deduces of a value: maps are merged, lists are replaced.
func typeOf(kind codec.GroupVersionKind) (typed.ParseableType, error) {
	if withoutSchema[kind] {
		return typed.ParseableType{}, fmt.Errorf("no corresponding type for %s/%s, Kind=%s", kind.Group, kind.Version, kind.Kind)
	}
	if known := schemas().Type(typeName(kind)); known.IsValid() {
		return known, nil
	}
	return typed.DeducedParseableType, nil
}

// typeName returns the name that a kind of Kubernetes has in the schema, or one that
// it has not.
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
