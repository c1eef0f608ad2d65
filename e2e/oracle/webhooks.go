package oracle

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/cluster"
)

// HooksDomain ends the names of the webhooks that a World has.
const HooksDomain = ".hooks.example.com"

// asCustomResources returns objects with the custom resources of fastadmit in place of
// webhook configurations.
func asCustomResources(objects []runtime.Object) (all []runtime.Object, err error) {
	for _, object := range objects {
		var kind string
		switch object.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			kind = "ValidatingWebhookConfiguration"
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			kind = "MutatingWebhookConfiguration"
		default:
			all = append(all, object)
			continue
		}
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, err
		}
		fields["apiVersion"], fields["kind"] = cluster.WebhookGroup+"/v1", kind
		if text, err = json.Marshal(fields); err != nil {
			return nil, err
		}
		resource, err := cluster.NewJSON(text)
		if err != nil {
			return nil, err
		}
		all = append(all, resource)
	}
	return all, nil
}

// annotationKey returns the key that fastadmit has for one of kube-apiserver's: of most,
// what is behind the prefix. It is empty for patches, which are not written unless
// somebody asks for them.
func annotationKey(key string) string {
	if about, round, ok := strings.Cut(key, "webhook.admission.k8s.io/"); ok {
		if about == "patch." {
			return ""
		}
		return about + round
	}
	if strings.HasSuffix(path.Dir(key), HooksDomain) {
		return strings.Replace(key, "/", ".", 1)
	}
	return path.Base(key)
}

// reencoded returns an object as an API server encodes what it decodes of it, with
// defaults; what it does not decode stays.
func reencoded(object []byte) []byte {
	decoded, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(object, nil, nil)
	if err != nil {
		return object
	}
	legacyscheme.Scheme.Default(decoded)
	if encoded, err := encode(decoded); err == nil {
		return encoded
	}
	panic(fmt.Sprintf("cannot encode what was decoded of %s", object))
}
