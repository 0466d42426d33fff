// Package rpc is the wire contract of shelld: the OpenAPI document, the JSON
// types of every request and response, and the error envelope.
//
// The document ([OpenAPI]) is the source of truth; tests validate every
// request and response of the suites against it. Types that mirror the OpenAI
// API ("containers") keep its names and shapes. The types and the document
// are public: within /v1 they only grow.
package rpc

import _ "embed"

// OpenAPI is the OpenAPI 3.0 document of the API, in YAML, as served at
// /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
