package translate

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// macros are expressions of Kubernetes for functions of Kyverno. %s is the argument.
var macros = map[string]string{
	"parseServiceAccount": `[%s].map(a, a.startsWith('system:serviceaccount:') && a.split(':').size() == 4 ? ` +
		`{'Namespace': a.split(':')[2], 'Name': a.split(':')[3]} : {'Namespace': '', 'Name': ''})[0]`,
	// As in github.com/google/go-containerregistry, the steps cut off the digest, the tag and the
	// registry, and add the folder of Docker Hub.
	"image": `[%s].map(r, [r.split('@')[0], r.contains('@') ? r.split('@')[1] : ''])` +
		`.map(r, r[0].matches(':[^/]*$') ? [r[0].substring(0, r[0].lastIndexOf(':')), r[0].substring(r[0].lastIndexOf(':') + 1), r[1]] : ` +
		`[r[0], r[1] == '' ? 'latest' : '', r[1]])` +
		`.map(r, r[0].matches('^([^/]*[.:][^/]*|localhost)/') ? [r[0].substring(0, r[0].indexOf('/')), r[0].substring(r[0].indexOf('/') + 1), r[1], r[2]] : ` +
		`['index.docker.io', r[0], r[1], r[2]])` +
		`.map(r, r[0] in ['docker.io', 'index.docker.io'] ? ['index.docker.io', r[1].contains('/') ? r[1] : 'library/' + r[1], r[2], r[3]] : r)` +
		`.map(r, {'registry': r[0], 'repository': r[1], 'tag': r[2], 'digest': r[3], 'identifier': r[3] != '' ? r[3] : r[2]})[0]`,
	"isImage": `[%s].exists(r, type(r) == string && r.matches('^[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$'))`,
}

const (
	// callsMax is how many calls of macros an expression may have. One call is written out in
	// 1 KiB, and each is searched for from the beginning.
	callsMax = 64
	// writtenOutBytesMax is how long an expression may become, in bytes: with it, a policy of a
	// few variables cannot take all memory. Kubernetes' own policies have some hundred bytes.
	writtenOutBytesMax = 128 << 10
)

var (
	macroCall = regexp.MustCompile(`(^|[^.\w])(?:user\.)?(parseServiceAccount|parseImageReference|image|isImage)\(`)
	imageCall = regexp.MustCompile(`(^|[^.\w])(parseImageReference|image)\(`)
	// imageMethod matches a method of an image. Kubernetes has no methods with these names.
	imageMethod = regexp.MustCompile(`\.(registry|repository|identifier|tag|digest|containsDigest)\(\s*\)`)
	// kyvernoCall matches a call of a function that has no macro.
	kyvernoCall = regexp.MustCompile(`(^|[^.\w])((?:resource|http|globalContext|generator)\s*\.\s*[A-Za-z]+|image\s*\.\s*[gG]etMetadata|` +
		`time\s*\.\s*(?:now|truncate|toCron)|json\s*\.\s*(?:un)?marshal|yaml\s*\.\s*parse|x509\s*\.\s*decode|base64\s*\.\s*(?:de|en)code|` +
		`(?:hash\s*\.\s*)?(?:sha1|sha256|md5)|(?:random\s*\.\s*)?random|gzip\s*\.\s*(?:de)?compress|` +
		`(?:transform\s*\.\s*)?listObjToMap|verifyImageSignatures|verifyAttestationSignatures)\s*\(`)
	// isRead matches those that Options.Reads translates, isFunction those that Options.Functions does.
	isRead     = regexp.MustCompile(`^resource\.(?:[gG]et|[lL]ist)$`)
	isFunction = regexp.MustCompile(`^(?:(?:hash\.)?(?:sha1|sha256|md5)|time\.(?:now|truncate|toCron)|json\.(?:un)?marshal|yaml\.parse|` +
		`x509\.decode|base64\.(?:de|en)code|(?:transform\.)?listObjToMap)$`)
	spaces = regexp.MustCompile(`\s+`)
)

// functionReasons say why functions have no translation, by library.
var functionReasons = map[string]string{
	"resource": "expressions of Kubernetes read no other objects of the cluster: put what the policy needs into parameters " +
		"(paramKind, paramRef), or have fastadmit evaluate the document itself (policies.read)",
	"globalContext": "expressions of Kubernetes read no other objects of the cluster: put what the policy needs into parameters (paramKind, paramRef)",
	"http":          "expressions of Kubernetes ask no servers: put what the policy needs into parameters, or keep Kyverno for it",
	"image":         "expressions of Kubernetes ask no registries: keep Kyverno for it",
	"generator":     "it creates objects: keep Kyverno for it, or a controller",
	"random": "the same request would be answered differently each time, also when it is sent again, tested or replayed: " +
		"make the value from the object or from request, or keep Kyverno for it",
	"gzip":                        "a short text of a user may become a very long one: have the data in the object without compression, or keep Kyverno for it",
	"verifyImageSignatures":       signatureReason,
	"verifyAttestationSignatures": signatureReason,
}

const (
	signatureReason = "it verifies signatures, for which it asks registries: keep Kyverno for it, or an ImagePolicyWebhook"
	evaluateReason  = "Kubernetes' expressions have no such function: write the rule without it, or have fastadmit evaluate the document " +
		"itself (--policies, staticManifestsDir or policies.read)"
)

// expand replaces functions of Kyverno by the expressions in macros. It returns an error for functions that have none,
// apart from those that the options translate: they stay, and functions is true. If images is true, it also replaces
// methods of images by fields of the map that the macro image returns.
func (t *translator) expand(expression string, images bool) (expanded string, functions bool, err error) {
	unknown := ""
	stretches(expression, func(code string) string {
		for _, found := range kyvernoCall.FindAllStringSubmatch(code, -1) {
			name := spaces.ReplaceAllString(found[2], "")
			if t.Reads && isRead.MatchString(name) || t.Functions && isFunction.MatchString(name) {
				functions = true
			} else {
				unknown = name
			}
		}
		return code
	})
	if unknown != "" {
		return expression, false, refusedFunction(unknown)
	}
	expanded, err = writeOut(expression, images)
	return expanded, functions, err
}

// refusedFunction returns the error about a function.
func refusedFunction(name string) error {
	library, _, _ := strings.Cut(name, ".")
	return fmt.Errorf("the function %s of Kyverno has no translation: %s", name, cmp.Or(functionReasons[library], evaluateReason))
}

// writeOut writes the macros of an expression out, and the methods of images if images is true.
func writeOut(expression string, images bool) (string, error) {
	for from, calls := 0, 0; ; calls++ {
		at := findCall(expression, from)
		if at == nil {
			break
		}
		if calls == callsMax || len(expression) > writtenOutBytesMax {
			return "", fmt.Errorf("the functions of Kyverno in it are written out for at most %d calls and %d bytes: divide the expression",
				callsMax, writtenOutBytesMax)
		}
		begin, open, name := at.begin, at.open, at.name
		end := skipParentheses(expression, open)
		if end < 0 {
			break // compiling it reports the error
		}
		argument := expression[open+1 : end-1]
		expanded := fmt.Sprintf(macros[name], argument)
		expression = expression[:begin] + expanded + expression[end:]
		from = begin + 1 // calls in the argument come next
	}
	if images {
		expression = stretches(expression, func(code string) string {
			code = strings.ReplaceAll(code, ".containsDigest()", ".digest.matches('.')")
			return imageMethod.ReplaceAllString(code, ".$1")
		})
	}
	return expression, nil
}

type call struct {
	begin, open int
	name        string
}

// findCall returns the first call of a macro at or after an offset, outside of strings and comments.
func findCall(expression string, from int) *call {
	for _, found := range macroCall.FindAllStringSubmatchIndex(expression, -1) {
		name, begin := expression[found[4]:found[5]], found[3]
		if begin < from || inText(expression, begin) {
			continue
		}
		if name == "parseImageReference" {
			name = "image"
		}
		return &call{begin, found[1] - 1, name}
	}
	return nil
}

// inText reports whether an offset is in a string literal or comment.
func inText(expression string, offset int) bool {
	for at := 0; at < offset; {
		end := skipText(expression, at)
		if end > offset {
			return true
		}
		at = max(end, at+1)
	}
	return false
}
