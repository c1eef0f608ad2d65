package cel

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// x509Option declares x509.decode, as github.com/kyverno/sdk does in extensions/cel/libs/x509.
var x509Option = cel.Function("x509.decode", cel.Overload("x509_decode_string",
	[]*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(decodeCertificate)))

// certificateFields are the fields of a Certificate that x509.decode returns. Those of a CertificateRequest are all.
var certificateFields = []string{
	"Raw", "RawTBSCertificate", "RawSubjectPublicKeyInfo", "RawSubject", "RawIssuer", "Signature", "PublicKeyAlgorithm",
	"Issuer", "NotBefore", "NotAfter", "KeyUsage", "Extensions", "ExtraExtensions", "ExtKeyUsage", "BasicConstraintsValid",
	"IsCA", "MaxPathLen", "MaxPathLenZero", "AuthorityKeyId", "OCSPServer", "IssuingCertificateURL", "DNSNames",
	"EmailAddresses", "IPAddresses", "PermittedDNSDomainsCritical", "PermittedDNSDomains", "ExcludedDNSDomains",
	"PermittedIPRanges", "ExcludedIPRanges", "PermittedEmailAddresses", "ExcludedEmailAddresses", "PermittedURIDomains",
	"ExcludedURIDomains", "CRLDistributionPoints", "PolicyIdentifiers",
}

// certificateBytesMax is how long a certificate or request may be in DER. They have one or two kilobytes; the time
// to write its modulus in decimal grows faster than its length.
const certificateBytesMax = 32 << 10

// decodeCertificate is x509.decode(text): the first certificate or request in PEM, as a map.
func decodeCertificate(v ref.Val) ref.Val {
	block, _ := pem.Decode([]byte(v.(types.String)))
	if block == nil {
		return types.NewErr("failed to decode PEM block")
	}
	if len(block.Bytes) > certificateBytesMax {
		return types.NewErr("got a PEM block of %d bytes, the maximum is %d", len(block.Bytes), certificateBytesMax)
	}
	decoded, err := certificateOf(block)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(decoded)
}

func certificateOf(block *pem.Block) (map[string]any, error) {
	switch block.Type {
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		fields := map[string]any{"SerialNumber": c.SerialNumber.Int64()}
		for _, name := range certificateFields {
			fields[name] = reflect.ValueOf(c).Elem().FieldByName(name).Interface()
		}
		fields["PublicKey"], err = publicKey(c.PublicKey)
		return throughJSON(fields, err)
	case "CERTIFICATE REQUEST":
		r, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return nil, err
		}
		r.PublicKey, err = publicKey(r.PublicKey)
		return throughJSON(r, err)
	}
	return nil, errors.New("PEM block neither contains a CERTIFICATE or CERTIFICATE REQUEST")
}

// publicKey returns a key as Kyverno shows it: the modulus in decimal, and the exponent.
func publicKey(key any) (any, error) {
	k, isRSA := key.(*rsa.PublicKey)
	if !isRSA {
		return nil, errors.New("certificate should use rsa algorithm")
	}
	return map[string]any{"N": k.N.String(), "E": k.E}, nil
}

// throughJSON returns what encoding/json writes of a value, and reads again.
func throughJSON(v any, err error) (read map[string]any, _ error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	return read, err
}
