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

// HooksDomain is the suffix of the names of webhooks in a World.
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

// annotationKey converts the key of an audit annotation of kube-apiserver to fastadmit's. Most keys only
// lose their prefix. The result is empty for patches, which fastadmit does not write by default.
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

// reencoded decodes an object, sets its defaults and encodes it again, as an API server does. It returns
// an object that cannot be decoded unchanged.
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
